/** What is at some paths, before they are written to, in one request. */
import { randomBytes } from "node:crypto";
import { MoorageError } from "../../../src/errors.ts";
import { limits } from "../../../src/limits.ts";
import type { CapturedFile, EnvironmentTree } from "../../base.ts";
import { absolutePath } from "../files/path.ts";
import { needStatus } from "../files/stat.ts";
import { quote } from "../quote.ts";
import type { SystemShell } from "../stream.ts";

/**
 * For each path: where its last place is and whether a link is there, then its content by the library's own reader.
 * A nonce frames what is said of each, since contents hold anything.
 */
export async function captureFiles(
  system: SystemShell,
  facts: { readonly workspace: () => string },
  paths: readonly string[],
  { maxBytes, cwd, timeoutMs = limits.fileOpTimeoutMs }: Parameters<EnvironmentTree["capture"]>[1],
): Promise<readonly CapturedFile[]> {
  if (paths.length === 0) return [];
  const needsHome = paths.some((path) => path.startsWith("~"));
  if (needsHome) await system.run(":");
  const nonce = randomBytes(16).toString("hex");
  const home = needsHome ? system.home : "/";
  const script = paths
    .map((path) => {
      const absolute = quote(absolutePath(path, { home, workspace: facts.workspace(), cwd }, "checkpoint"));
      return `( __moor_enter ${absolute} -
link=; [ -n "$rest" ] || [ ! -L "./$name" ] || __moor_readlink "./$name"
missing=; [ -z "$rest" ] || missing=\${here%/}/$name
printf '%s\\000%s\\000%s\\000' "$real" "$missing" "$link" )
printf ${nonce}
( __moor_read ${absolute} ${maxBytes} s ) 2>&1
printf '${nonce}%s${nonce}' "$?"`;
    })
    .join("\n");
  const { exitCode, stdout, stderr } = await system.run(script, {
    timeoutMs,
    maxBytes: paths.length * (maxBytes + 64 * 1024),
  });
  const pieces = split(stdout, Buffer.from(nonce));
  if (exitCode !== 0 || pieces.length !== 3 * paths.length + 1) {
    throw new MoorageError("INTERNAL", `Cannot look at files: ${stderr.trim() || "the answer ends early"}`);
  }
  return paths.map((path, index) => {
    const [place, content, code] = pieces.slice(3 * index);
    return toCaptured(path, place ?? Buffer.alloc(0), content ?? Buffer.alloc(0), String(code));
  });
}

function toCaptured(path: string, place: Buffer, content: Buffer, code: string): CapturedFile {
  const [real = "", missing = "", target = ""] = place.toString("latin1").split("\0");
  const text = (bytes: string) => Buffer.from(bytes, "latin1").toString("utf8");
  const link = target === "" ? null : { path: text(real), target };
  const nothing = { path, realPath: text(real), link, bytes: null, status: null, missingFolder: null };
  if (code === "0") return { ...nothing, state: "file", ...parseRead(content) };
  const [, reason = ""] = /^moorage-file ([A-Z]+)/m.exec(content.toString("latin1")) ?? [];
  if (reason === "BIG") return { ...nothing, state: "large" };
  if (reason === "MISSING" || reason === "DOTS") {
    return { ...nothing, state: "absent", missingFolder: missing === "" ? null : text(missing) };
  }
  return { ...nothing, state: "other" };
}

/** The answer of the library's reader: real path, then status after or before the content. */
function parseRead(answer: Buffer): Required<Pick<CapturedFile, "realPath" | "bytes" | "status">> {
  const end = answer.indexOf(0);
  const realPath = answer.toString("utf8", 0, end);
  const body = answer.subarray(end + 1);
  if (body[0] === "T".charCodeAt(0)) {
    const bar = body.lastIndexOf("|");
    return {
      realPath,
      bytes: Buffer.from(body.subarray(1, bar)),
      status: needStatus(body.toString("latin1", bar + 1)),
    };
  }
  const line = body.indexOf("\n");
  const bytes = Buffer.from(body.subarray(line + 1));
  return { realPath, bytes, status: needStatus(body.toString("latin1", 1, line)) };
}

function split(bytes: Buffer, mark: Buffer): Buffer[] {
  const pieces: Buffer[] = [];
  let at = 0;
  for (let next = bytes.indexOf(mark); next >= 0; next = bytes.indexOf(mark, at)) {
    pieces.push(bytes.subarray(at, next));
    at = next + mark.length;
  }
  pieces.push(bytes.subarray(at));
  return pieces;
}
