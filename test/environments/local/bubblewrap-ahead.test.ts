/** The process that waits to become the next bubblewrap sandbox. Its orchestrators are processes of their own. */
import { type ChildProcess, spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { afterEach, describe, expect, it } from "vitest";
import { WHOLE } from "../../../environments/local/bubblewrap/supervisor.ts";
import { readRecords } from "../../../environments/local/owners.ts";
import { sandboxes } from "./sandboxes.ts";

const { root, suite, note } = await sandboxes("bubblewrap-ahead");
const MODULE = join(import.meta.dirname, "../../../environments/local/bubblewrap/index.ts");

/** For the orchestrators: each line of their standard input is evaluated, and its value told. */
const ORCHESTRATOR = `const { createBubblewrapEnvironment } = await import(${JSON.stringify(MODULE)});
const make = (folders) => createBubblewrapEnvironment({ egress: "none", ...folders });
const say = (value) => console.log(JSON.stringify(value ?? null));
const AsyncFunction = (async () => {}).constructor;
for await (const line of (await import("node:readline")).createInterface({ input: process.stdin }))
  say(await new AsyncFunction("make", "kept", line)(make, (globalThis.kept ??= [])).catch((error) => String(error)));`;

const running: ChildProcess[] = [];
afterEach(() => {
  for (const child of running.splice(0)) child.kill("SIGKILL");
});

/** Of the machine: where some are shared it is a bash that waits, and else bwrap itself. */
type Mounts = "shared" | "private";

async function orchestrator(mounts: Mounts, env: NodeJS.ProcessEnv = {}) {
  const places = {
    workspace: await mkdtemp(join(root, "workspace-")),
    stateDir: await mkdtemp(join(root, "state-")),
  };
  const user = process.getuid?.() === 0 ? [] : ["--user", "--map-current-user"];
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

function childrenOf(parent: number | undefined): number[] {
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
function isGone(pid: number | undefined): boolean {
  try {
    return /\) Z /.test(readFileSync(`/proc/${pid}/stat`, "latin1"));
  } catch {
    return true;
  }
}

function words(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
  } catch {
    return [];
  }
}

/** What a start gives to the first program inside, and to a command. */
const FACTS = `tr '\\0' '\\n' </proc/2/environ | sort; echo; env | grep -v ^MOORAGE_ | sort; echo "$SHLVL $PWD $(umask)"
ls -l /proc/2/fd | wc -l; grep -E '^(Sig|Cap|NoNew|Seccomp)' /proc/2/status; tr '\\0' ' ' </proc/2/cmdline; cut -d' ' -f5,6 /proc/2/stat`;

suite.each(["shared", "private"] as const)(
  `the process that waits to become a bubblewrap sandbox where mounts are %s${note}`,
  (mounts) => {
    it("becomes the next one, which has what one that is started directly has", async () => {
      const odd = {
        ODD: "a\n'\"\\ $(exit) é \u{1f600} \t",
        EMPTY: "",
        _: "/bin/theirs",
        SHLVL: "7",
        OLDPWD: "/usr",
        PWD: "/etc",
        UID: "12",
        RANDOM: "no",
        BASHOPTS: "x",
        LC_ALL: "C.UTF-8",
        IFS: "x",
        POSIXLY_CORRECT: "1",
        "no-identifier": "1",
        "--setenv": "2",
        LONG: "x".repeat(100_000),
      };
      const { run, one, ask, stop, waiting } = await orchestrator(mounts, odd);
      const first = await run(FACTS);
      const pid = await one();
      const second = await run(FACTS);
      expect(words(pid).filter((word) => /\/bwrap$/.test(word))).toHaveLength(1);
      expect(second).toBe(first);
      expect(first).toContain("ODD=a\n");
      // It is told nothing by its arguments or its variables.
      expect(words(pid).join(" ")).not.toContain("exit) é");
      expect(readFileSync(`/proc/${pid}/environ`, "utf8")).toMatch(/MOORAGE_WORKER=[^\0]+\.sandbox/);
      // What else a program has from who starts it.
      await one();
      await ask("process.umask(0o027)");
      const [old] = waiting();
      expect(await run("umask")).toBe("0027\n");
      await expect.poll(() => isGone(old)).toBe(true);
      expect(await stop()).toBe(null);
    });

    it.each(["SIGKILL", "SIGSTOP"] as const)("is done without after a %s", async (signal) => {
      const { run, one } = await orchestrator(mounts);
      expect(await run("echo 1")).toBe("1\n");
      const pid = await one();
      process.kill(pid, signal);
      expect(await run("echo 2")).toBe("2\n");
      await expect.poll(() => isGone(pid)).toBe(true);
      expect(await run("echo 3")).toBe("3\n");
    });

    it("is used once by starts that begin together, and there is one again", async () => {
      const { run, one, ask, places } = await orchestrator(mounts);
      await run("true");
      await one();
      const both =
        await ask(`const two = [1, 2, 3].map(() => make(${JSON.stringify(places)})); kept.push(...two);
return await Promise.all(two.map(async (each, index) => (await each.exec("echo " + index)).output))`);
      expect(both).toEqual(["0\n", "1\n", "2\n"]);
      await one();
    });

    const itself = mounts === "shared" ? "bash" : "bwrap";

    it(`is done without where ${itself} is found elsewhere`, async () => {
      const { run, one, ask, waiting } = await orchestrator(mounts);
      await run("true");
      const pid = await one();
      const folder = await mkdtemp(join(root, "bin-"));
      await ask(`(await import("node:fs")).symlinkSync("/usr/bin/${itself}", ${JSON.stringify(join(folder, itself))});
process.env.PATH = ${JSON.stringify(folder)} + ":" + process.env.PATH`);
      expect(await run("echo 2")).toBe("2\n");
      expect(waiting()).not.toContain(pid);
      await expect.poll(() => isGone(pid)).toBe(true);
    });

    it("keeps no process from its end, and ends with it", async () => {
      const { child, run, one, stop, ended } = await orchestrator(mounts);
      await run("true");
      const pid = await one();
      expect(await stop()).toBe(null);
      expect(isGone(pid)).toBe(false);
      child.stdin?.end();
      expect(await ended).toBe(0);
      await expect.poll(() => isGone(pid), { timeout: 5_000 }).toBe(true);
    });

    it("ends with an orchestrator that is killed", async () => {
      const { child, run, one } = await orchestrator(mounts);
      await run("true");
      const pid = await one();
      child.kill("SIGKILL");
      await expect.poll(() => isGone(pid), { timeout: 5_000 }).toBe(true);
    });

    it("is not forked where no sandbox came up", async () => {
      const { ask, places, waiting } = await orchestrator(mounts, { PATH: root });
      expect(
        await ask(`await make(${JSON.stringify(places)}).start().catch((error) => { throw error.code })`),
      ).toBe("ENVIRONMENT_UNAVAILABLE");
      expect(waiting()).toEqual([]);
    });

    it("does nothing by what is cut", async () => {
      const { run, one } = await orchestrator(mounts);
      await run("true");
      const [file = "", ...argv] = words(await one()).slice(0, -1);
      const said = async (told: string) => {
        const child = spawn(file, argv, { env: {}, stdio: ["pipe", "pipe", "ignore", "pipe"] });
        child.stdin?.on("error", () => {});
        child.stdin?.end("open 1\nopen 2\n");
        const [, , , pipe] = child.stdio;
        if (pipe && "end" in pipe) pipe.on("error", () => {}).end(told);
        return await text(child.stdout as NodeJS.ReadableStream);
      };
      expect(await said("")).toBe("");
      if (mounts === "private") {
        const root = "--ro-bind\0/\0/\0--dev\0/dev\0--proc\0/proc";
        expect(await said(root)).toBe("");
        // Were they whole, it would.
        expect(await said(`${root}\0--setenv\0${WHOLE}\0yes`)).toMatch(/^ready\n/);
        return;
      }
      expect(await said("00000020echo ran\nexec cat")).toBe("");
      expect(await said("000000")).toBe("");
      // It takes no byte after a whole one.
      expect(await said("00000022echo é; exec cat <&3 rest\0of it")).toBe("é\nrest\0of it");
    });

    it("is found by the record of the sandbox that it becomes, whose orchestrator was killed", async () => {
      const { run, one, places } = await orchestrator(mounts);
      await run("true");
      const pid = await one();
      await run("true");
      const records = await readRecords(places.stateDir);
      const mark = readFileSync(`/proc/${pid}/environ`, "utf8").match(/MOORAGE_WORKER=([^\0]+)/)?.[1];
      expect(records.flatMap(({ marks }) => marks)).toContain(mark);
    });
  },
);

describe("a text for the process that waits", () => {
  it("is none where a variable cannot be told", async () => {
    const { areTellable } = await import("../../../environments/local/bubblewrap/ahead.ts");
    const told = [
      { A: "1", "a-b": "" },
      { "A=B": "1" },
      { "": "1" },
      { A: "1\0--bind" },
      { LD_PRELOAD: "x" },
    ];
    expect(told.map((env) => areTellable(env as Record<string, string>))).toEqual([
      true,
      false,
      false,
      false,
      false,
    ]);
    const many = Object.fromEntries(Array.from({ length: 201 }, (_, index) => [`V${index}`, ""]));
    expect(areTellable(many)).toBe(false);
  });
});
