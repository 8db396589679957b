/** The process that waits to become the next bubblewrap sandbox. Its orchestrators are processes of their own. */
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { describe, expect, it } from "vitest";
import { WHOLE } from "../../../environments/local/bubblewrap/supervisor.ts";
import { readRecords } from "../../../environments/local/owners.ts";
import { reapWaiting } from "../../../environments/local/reap.ts";
import { isGone, orchestrators, words } from "./orchestrators.ts";
import { sandboxes } from "./sandboxes.ts";

const { root, suite, note } = await sandboxes("bubblewrap-ahead");
const { orchestrator } = orchestrators(root);

const LIMITS = join(import.meta.dirname, "../../../src/limits.ts");

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
      const next = await one();
      await ask(
        `(await import("node:child_process")).execFileSync("chrt", ["--batch", "--pid", "0", String(process.pid)])`,
      );
      expect(await run("chrt --pid $$ | head -n 1")).toMatch(/SCHED_BATCH\n$/);
      await expect.poll(() => isGone(next)).toBe(true);
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

    it("is found, though it was stopped, once its orchestrator was killed", async () => {
      const { child, run, one, ended } = await orchestrator(mounts);
      await run("true");
      const pid = await one();
      process.kill(pid, "SIGSTOP");
      const reaped = async () => (await reapWaiting()).flatMap(({ processes }) => processes);
      expect(await reaped()).not.toContain(pid);
      child.kill("SIGKILL");
      await ended;
      expect(isGone(pid)).toBe(false);
      expect(await reaped()).toContain(pid);
      await expect.poll(() => isGone(pid)).toBe(true);
    });

    it("is given up where somebody stops it while it is told", { timeout: 30_000 }, async () => {
      const many = Object.fromEntries(Array.from({ length: 20 }, (_, at) => [`V${at}`, "x".repeat(50_000)]));
      const { run, one, ask, stop } = await orchestrator(mounts, many);
      await run("true");
      const pid = await one();
      // Its record is written after it was taken, and before it is told.
      await ask(`(await import(${JSON.stringify(LIMITS)})).limits.openTimeoutMs = 3000;
const fs = await import("node:fs");
const { renameSync } = fs.default;
fs.default.renameSync = (...paths) => { renameSync(...paths); process.kill(${pid}, "SIGSTOP"); };
(await import("node:module")).syncBuiltinESMExports()`);
      expect(await run("true")).toMatch(/did not start within 3000 ms/);
      await expect.poll(() => isGone(pid)).toBe(true);
      expect(await stop()).toBe(null);
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
