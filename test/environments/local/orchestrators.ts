/** Orchestrators of bubblewrap sandboxes that are processes of their own. */
import { type ChildProcess, spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterEach, expect } from "vitest";

const MODULE = join(import.meta.dirname, "../../../environments/local/bubblewrap/index.ts");

/** For the orchestrators: each line of their standard input is evaluated, and its value told. */
const ORCHESTRATOR = `const { createBubblewrapEnvironment } = await import(${JSON.stringify(MODULE)});
const make = (folders) => createBubblewrapEnvironment({ egress: "none", ...folders });
const say = (value) => console.log(JSON.stringify(value ?? null));
const AsyncFunction = (async () => {}).constructor;
for await (const line of (await import("node:readline")).createInterface({ input: process.stdin }))
  say(await new AsyncFunction("make", "kept", line)(make, (globalThis.kept ??= [])).catch((error) => String(error)));`;

/** Of the machine: where some are shared it is a bash that waits, and else bwrap itself. */
export type Mounts = "shared" | "private";

/** To be called once by each file, since it is the file's own tests that its hooks follow. */
export function orchestrators(root: string) {
  const running: ChildProcess[] = [];
  afterEach(() => {
    for (const child of running.splice(0)) child.kill("SIGKILL");
  });

  async function orchestrator(mounts: Mounts, env: NodeJS.ProcessEnv = {}, ids = "--map-current-user") {
    const places = {
      workspace: await mkdtemp(join(root, "workspace-")),
      stateDir: await mkdtemp(join(root, "state-")),
    };
    const user = process.getuid?.() === 0 ? [] : ["--user", ids];
    const node = [process.execPath, "--input-type=module", "-e", ORCHESTRATOR];
    const child = spawn("/usr/bin/unshare", ["--mount", ...user, "--propagation", mounts, ...node], {
      env: { PATH: process.env.PATH, HOME: process.env.HOME, ...env },
      stdio: ["pipe", "pipe", "inherit"],
    });
    running.push(child);
    const ended = new Promise<number | null>((resolve) => child.once("exit", resolve));
    const answers = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const ask = async (code: string): Promise<unknown> => {
      child.stdin.write(`${code.replaceAll("\n", " ")}\n`);
      return JSON.parse((await answers.next()).value ?? '"it ended"');
    };
    /** Starts an environment, and tells what a command in it says. */
    const run = (command: string) =>
      ask(`const one = make(${JSON.stringify(places)}); kept.push(one);
return (await one.exec(${JSON.stringify(command)})).output`);
    /** A sandbox's bwrap has the same words, and a child. */
    const waiting = () =>
      childrenOf(child.pid).filter((pid) => {
        const [file = "", ...argv] = words(pid);
        return mounts === "shared"
          ? argv[3]?.startsWith("IFS= read")
          : file.endsWith("/bwrap") && childrenOf(pid).length === 0;
      });
    /** The one that waits, once there is one. */
    const one = async () => {
      await expect.poll(waiting, { timeout: 10_000 }).toHaveLength(1);
      return waiting()[0] ?? 0;
    };
    const stop = () => ask("for (const one of kept.splice(0)) await one.stop()");
    return { child, ended, ask, run, waiting, one, stop, places };
  }

  return { orchestrator };
}

export function childrenOf(parent: number | undefined): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        return new RegExp(`\\) [RSDT] ${parent} `).test(readFileSync(`/proc/${pid}/stat`, "latin1"));
      } catch {
        return false;
      }
    });
}

/** Who reaps it may be slow. */
export function isGone(pid: number | undefined): boolean {
  try {
    return /\) Z /.test(readFileSync(`/proc/${pid}/stat`, "latin1"));
  } catch {
    return true;
  }
}

export function words(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
  } catch {
    return [];
  }
}
