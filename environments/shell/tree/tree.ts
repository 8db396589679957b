/** `tree` inside an environment, by the programs that every Linux system has: GNU's or BusyBox's. */
import { randomBytes } from "node:crypto";
import { MoorageError, toMoorageError } from "../../../src/errors.ts";
import { limits } from "../../../src/limits.ts";
import type { EnvironmentTree, TreeFile } from "../../base.ts";
import { Channel } from "../../tree/channel.ts";
import { isInside, isOurs } from "../../tree/names.ts";
import { decodeTar } from "../../tree/tar.ts";
import { quote } from "../quote.ts";
import type { SystemShell } from "../stream.ts";
import { captureFiles } from "./capture.ts";
import { HASH_PROGRAM, ODD_NAME, parseHashes } from "./hash.ts";
import { withoutPlaceholders } from "./placeholders.ts";
import { enterRoot, pathList, rootError } from "./run.ts";
import { type ScanMemo, scanTree } from "./scan.ts";
import { ShellWriter } from "./writer.ts";

/**
 * Makes the tree of an environment. The shell must have `FILE_LIBRARY` defined.
 *
 * @param facts.id of the environment
 * @param facts.workspace where the relative paths of `capture` start
 * @param facts.placeholders what a scan leaves out, absolute. @default nothing
 */
export function createTree(
  system: SystemShell,
  facts: {
    readonly id: string;
    readonly workspace: () => string;
    readonly placeholders?: () => Promise<readonly string[]>;
  },
): EnvironmentTree {
  const memo: ScanMemo = { hasFind: false, find: null, last: null };
  const scan: EnvironmentTree["scan"] = (root, options) => scanTree(system, memo, root, options);
  return {
    scan: async (root, options) => {
      const all = await scan(root, options);
      return withoutPlaceholders(all, (await facts.placeholders?.()) ?? []);
    },
    hash: (root, paths, options) => hashTree(system, root, paths, options),
    pack: (root, paths, take, options) => packTree(system, root, paths, take, options),
    capture: (paths, options) => captureFiles(system, facts, paths, options),
    writer: (root) => new ShellWriter(system, root, scan, () => memo.hasFind),
    identity: () => identityOf(system, facts.id),
  };
}

async function identityOf(system: SystemShell, id: string): Promise<string> {
  const fresh = randomBytes(16).toString("hex");
  // Of two that begin at once the second finds the first one's word.
  const { stdout } = await system.run(`[ -n "\${HOME-}" ] || exit 0
d=\${XDG_STATE_HOME:-$HOME/.local/state}/moorage f=$d/place
umask 077
[ -s "$f" ] || { mkdir -p "$d" && set -C && printf '%s\n' ${fresh} >"$f"; } 2>/dev/null
[ ! -f "$f" ] || head -n 1 "$f" 2>/dev/null
exit 0`);
  const word = stdout.toString("latin1").trim();
  return /^[0-9a-f]{32}$/.test(word) ? word : id;
}

type RunOptions = Parameters<EnvironmentTree["hash"]>[2];

async function hashTree(
  system: SystemShell,
  root: string,
  paths: readonly string[],
  { timeoutMs = limits.treeTimeoutMs, abortSignal }: RunOptions = {},
): Promise<ReadonlyMap<string, string>> {
  const hashes = new Map<string, string>();
  const asked = paths.filter((path) => isInside(path) && !isOurs(path));
  const plain = asked.filter((path) => !ODD_NAME.test(path));
  const odd = asked.filter((path) => ODD_NAME.test(path));
  // A pipe that took the place of a file meanwhile would be waited for, so each is looked at just before.
  const run = async (list: readonly string[], command: string) => {
    const { exitCode, stdout, stderr } = await system.run(
      `LC_ALL=C; export LC_ALL\n${enterRoot(root)}\n${HASH_PROGRAM} || exit 93\ncommand -v xargs >/dev/null 2>&1 || exit 93\n${command}\nexit 0`,
      { stdin: pathList(list), timeoutMs, maxBytes: 256 * 1024 * 1024, ...(abortSignal && { abortSignal }) },
    );
    if (exitCode !== 0) throw rootError(exitCode, "read", root, stderr);
    return stdout.toString("latin1");
  };
  if (plain.length > 0) {
    for (const [path, sum] of parseHashes(await run(plain, "xargs -0 $h 2>/dev/null"))) hashes.set(path, sum);
  }
  if (odd.length > 0) {
    const one = `for f; do if [ -f "$f" ] && [ -r "$f" ]; then $h <"$f"; else echo -; fi; done`;
    const lines = (await run(odd, `export h; xargs -0 sh -c ${quote(one)} sh`)).split("\n");
    for (const [index, path] of odd.entries()) {
      const [, sum] = /^([0-9a-f]{64})\b/.exec(lines[index] ?? "") ?? [];
      if (sum !== undefined) hashes.set(path, sum);
    }
  }
  return hashes;
}

/**
 * tar reads each file once, in the order of the list. GNU tar reads the list itself, since it takes a backslash on its
 * command line for an escape, and is told not to make links of files that share an inode; BusyBox cannot be, and its
 * links are asked for again. It gets as many command lines, and makes as many archives, as it takes.
 */
async function packTree(
  system: SystemShell,
  root: string,
  paths: readonly string[],
  take: (file: TreeFile) => Promise<void> | void,
  options: Parameters<EnvironmentTree["pack"]>[3] = {},
): Promise<void> {
  const { timeoutMs = limits.treeTimeoutMs, abortSignal, onFilledUp } = options;
  const asked = paths.filter((path) => isInside(path) && !isOurs(path));
  if (asked.length === 0) return;
  const channel = new Channel();
  const ending = new AbortController();
  const onAbort = () => ending.abort();
  abortSignal?.addEventListener("abort", onAbort, { once: true });
  const script = `LC_ALL=C; export LC_ALL
${enterRoot(root)}
command -v xargs >/dev/null 2>&1 && command -v tar >/dev/null 2>&1 || exit 93
if tar --hard-dereference --version >/dev/null 2>&1; then
  set -- tar --hard-dereference --no-recursion --format=gnu --quoting-style=escape -c -f - --null -T -
else
  set -- xargs -0 tar -c -f - --
fi
exec 4>&1
"$@" 2>&1 >&4 | while read -r l; do
  case $l in *': File shrank by '*|*': Read error at byte '*) printf '%s\\n' "$l" ;; esac
done >&2
exit 0`;
  const running = system
    .run(script, {
      stdin: pathList(asked),
      timeoutMs,
      abortSignal: ending.signal,
      onStdout: (chunk) => channel.push(chunk),
    })
    .then(
      ({ exitCode, stderr }) => {
        channel.close(exitCode === 0 ? null : rootError(exitCode, "read", root, stderr));
        return filledUp(stderr);
      },
      (error: unknown) => {
        channel.close(error);
        return [];
      },
    );
  const linked: { readonly path: string; readonly to: string }[] = [];
  const wanted = new Set(asked);
  try {
    for await (const { path: named, type, size, mode, linkTarget, content, bytes } of decodeTar(channel)) {
      const path = named.replace(/^\.\//, "");
      // Whatever else the archive holds was not asked for.
      if (!wanted.has(path)) continue;
      if (type === "hardlink") linked.push({ path, to: linkTarget });
      else if (type === "file") await take({ path, size, mode, content, ...(bytes && { bytes }) });
    }
  } catch (error) {
    ending.abort();
    channel.close();
    await running;
    throw abortSignal?.aborted
      ? new MoorageError("ABORTED", "Cannot finish: the caller cancelled")
      : toMoorageError(error, "INTERNAL", `Cannot read folder "${root}"`);
  } finally {
    abortSignal?.removeEventListener("abort", onAbort);
  }
  for (const path of await running) onFilledUp?.(path);
  // Alone in an archive a file is no link.
  for (const { path } of linked) await packTree(system, root, [path], take, options);
}

/** Files that GNU tar has filled up with zeros, by what it said: it has told their sizes before it reads them. */
function filledUp(stderr: string): readonly string[] {
  const lines = stderr.matchAll(/^tar: (?:\.\/)?(.*): (?:File shrank by|Read error at byte) /gm);
  return [...lines].map(([, name = ""]) => name.replaceAll(/\\([0-7]{3}|.)/g, unescaped));
}

function unescaped(_: string, word: string): string {
  if (word.length === 3) return String.fromCharCode(Number.parseInt(word, 8));
  return ESCAPED[word] ?? word;
}

/** As GNU programs write characters in style `escape`. */
const ESCAPED: Readonly<Record<string, string>> = {
  a: "\x07",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
};
