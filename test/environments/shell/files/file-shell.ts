/** A system shell for the tests of `files`: one shell process per run, with the library read first. */
import { execFileSync, spawn } from "node:child_process";
import { mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FILE_LIBRARY } from "../../../../environments/shell/files/library.ts";
import type {
  SystemRunOptions,
  SystemRunResult,
  SystemShell,
} from "../../../../environments/shell/stream.ts";
import { MoorageError } from "../../../../src/errors.ts";

export interface FileShell extends SystemShell, AsyncDisposable {}

export interface FileShellOptions {
  readonly kind: "bash" | "dash" | "busybox";
  readonly home: string;
  /** Runs as this user and group. */
  readonly uid?: number;
  readonly umask?: string;
  /** Largest file that may be written, in blocks of 512 bytes; the signal for it is ignored, so that writes fail. */
  readonly fileBlocks?: number;
}

/** `busybox` also has nothing but BusyBox programs in its PATH. */
export async function createFileShell(options: FileShellOptions): Promise<FileShell> {
  const scratch = await mkdtemp(join(tmpdir(), "moorage-file-shell-"));
  let path = process.env.PATH ?? "/usr/bin:/bin";
  if (options.kind === "busybox") {
    path = join(scratch, "bin");
    execFileSync("mkdir", [path]);
    for (const applet of execFileSync("/bin/busybox", ["--list"], { encoding: "utf8" }).split("\n")) {
      if (applet !== "") await symlink("/bin/busybox", join(path, applet));
    }
  }
  const argv0 = options.kind === "busybox" ? ["/bin/busybox", "sh"] : [`/bin/${options.kind}`];
  execFileSync("chmod", ["755", scratch]);
  let runs = 0;

  const run = async (script: string, runOptions: SystemRunOptions = {}): Promise<SystemRunResult> => {
    const file = join(scratch, `run-${runs++}.sh`);
    const umask = options.umask === undefined ? "" : `umask ${options.umask}\n`;
    const limit = options.fileBlocks === undefined ? "" : `trap '' XFSZ\nulimit -f ${options.fileBlocks}\n`;
    await writeFile(file, `${umask}${limit}${FILE_LIBRARY}\n(${script}\n)\n`);
    const identity = options.uid === undefined ? {} : { uid: options.uid, gid: options.uid };
    const [program = "", ...args] = [...argv0, file];
    const child = spawn(program, args, { env: { PATH: path, LC_ALL: "C.UTF-8" }, ...identity, cwd: "/" });
    const stdout: Buffer[] = [];
    const stderr: Buffer[] = [];
    let timedOut = false;
    const timer = setTimeout(() => {
      timedOut = true;
      child.kill("SIGKILL");
    }, runOptions.timeoutMs ?? 300_000);
    child.stdin.on("error", () => undefined);
    child.stdin.end(runOptions.stdin ?? "");
    let reading = Promise.resolve();
    child.stdout.on("data", (chunk: Buffer) => {
      const { onStdout } = runOptions;
      if (!onStdout) stdout.push(chunk);
      else reading = reading.then(() => onStdout(chunk));
    });
    child.stderr.on("data", (chunk: Buffer) => stderr.push(chunk));
    const exitCode = await new Promise<number>((resolve, reject) => {
      child.on("error", reject);
      child.on("close", (code) => resolve(code ?? 137));
    });
    clearTimeout(timer);
    await reading;
    await rm(file);
    if (timedOut) throw new MoorageError("TOOL_TIMEOUT", "Cannot run the script: it took too long");
    const all = Buffer.concat(stdout);
    if (all.length > (runOptions.maxBytes ?? 64 * 1024 * 1024)) {
      throw new MoorageError("INTERNAL", "Cannot run the script: too much output");
    }
    return { exitCode, stdout: all, stderr: Buffer.concat(stderr).toString().slice(0, 65_536) };
  };
  return {
    run,
    home: options.home,
    shell: options.kind === "bash" ? "bash" : "sh",
    privateDir: async () => scratch,
    [Symbol.asyncDispose]: () => rm(scratch, { recursive: true, force: true }),
  };
}
