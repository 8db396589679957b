import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { endTree, findProcesses } from "../../../../environments/shell/processes/process-tree.ts";
import { slowUnless } from "../../../slow.ts";
import { createSpawnSystemShell } from "../spawn-system-shell.ts";

const started: ChildProcess[] = [];
afterEach(() => {
  for (const child of started.splice(0)) child.kill("SIGKILL");
});

/** Starts a bash command that carries the marker, away from the test's own group. */
function start(
  command: string,
  marker: string,
  {
    before = {},
    stdin = "ignore",
  }: { readonly before?: NodeJS.ProcessEnv; readonly stdin?: "ignore" | "pipe" } = {},
): ChildProcess {
  const [name = "", value = ""] = marker.split("=");
  const child = spawn("bash", ["-c", command], {
    env: { ...process.env, ...before, [name]: value },
    detached: true,
    stdio: [stdin, "ignore", "ignore"],
  });
  started.push(child);
  return child;
}

async function waitFor(claim: () => boolean | Promise<boolean>, deadlineMs = 15_000): Promise<void> {
  const end = performance.now() + deadlineMs;
  while (!(await claim())) {
    if (performance.now() > end) throw new Error(`Not within ${deadlineMs} ms: ${claim}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

function alive(pid: number): boolean {
  if (!existsSync(`/proc/${pid}/stat`)) return false;
  try {
    return !/\) [ZX]/.test(readFileSync(`/proc/${pid}/stat`, "latin1"));
  } catch {
    return false;
  }
}

const newMarker = (): string => `MOORAGE_TEST_TREE=${randomBytes(8).toString("hex")}`;

for (const kind of ["bash", "dash", "busybox"] as const) {
  describe(`process trees through ${kind}`, slowUnless(kind === "bash"), () => {
    it.each([
      ["a shell that waits for its child", "sleep 300 & wait", 2],
      ["setsid", "setsid sleep 300 & setsid sleep 301 & wait", 3],
      ["a double fork that left the group", "(setsid sh -c 'sleep 300 & sleep 301 &' &); exec sleep 302", 3],
      ["nohup", "nohup sleep 300 >/dev/null 2>&1 & exec sleep 301", 2],
      ["an odd program name", "exec -a 'x ) S 1 (\n y' sleep 300", 1],
      ["a stopped process", "sleep 300 & kill -STOP $!; wait", 2],
      ["a child without variables", "env -i sleep 300 & wait", 2],
      ["a cleared orphan in the group of a member", "(env -i sleep 300 &); exec sleep 301", 2],
    ])("endTree() ends %s", async (_name, command, count) => {
      await using system = await createSpawnSystemShell(kind);
      const marker = newMarker();
      start(command, marker);
      await waitFor(async () => (await findProcesses(system, { marker })).length === count);
      const members = await findProcesses(system, { marker });
      await waitFor(async () =>
        (await findProcesses(system, { marker })).some(({ command }) => /sleep|S 1/.test(command)),
      );
      const begin = performance.now();
      // It does not wait for the end of the grace.
      expect(await endTree(system, { marker, graceMs: 25_000 })).toEqual([]);
      expect(performance.now() - begin).toBeLessThan(20_000);
      expect(members.filter(({ pid }) => alive(pid))).toEqual([]);
      expect(await findProcesses(system, { marker })).toEqual([]);
    });

    it("findProcesses() finds what begins another program while it is looked at", async () => {
      await using system = await createSpawnSystemShell(kind);
      // A shell takes some time to read so much, byte by byte or by blocks.
      const before = { PAD: "x".repeat(100_000) };
      for (let delayMs = 0; delayMs < 60; delayMs += 6) {
        const marker = newMarker();
        const child = start("read -r _; exec sleep 300", marker, { before, stdin: "pipe" });
        await waitFor(async () => (await findProcesses(system, { marker })).length === 1);
        const looking = findProcesses(system, { marker });
        await new Promise((resolve) => setTimeout(resolve, delayMs));
        child.stdin?.end("\n");
        expect((await looking).map(({ pid }) => pid)).toEqual([child.pid]);
        child.kill("SIGKILL");
      }
    });

    it("endTree() kills what ignores TERM after the grace", async () => {
      await using system = await createSpawnSystemShell(kind);
      const marker = newMarker();
      const child = start("trap '' TERM INT HUP; while :; do sleep 300; done", marker);
      await waitFor(async () => (await findProcesses(system, { marker })).length === 2);
      expect(await endTree(system, { marker, graceMs: 200 })).toEqual([]);
      expect(alive(child.pid ?? 0)).toBe(false);
    });

    it("endTree() gives a TERM handler its grace", async () => {
      await using system = await createSpawnSystemShell(kind);
      const marker = newMarker();
      const flag = join(system.folder, "flag");
      start(
        `trap 'sleep 0.2; echo bye >${flag}; exit' TERM; echo >${flag}.ready; while :; do sleep 0.01; done`,
        marker,
      );
      await waitFor(() => existsSync(`${flag}.ready`));
      expect(await endTree(system, { marker, graceMs: 25_000 })).toEqual([]);
      expect(readFileSync(flag, "utf8")).toBe("bye\n");
    });

    it("endTree() outruns a process that keeps forking itself away", async () => {
      await using system = await createSpawnSystemShell(kind);
      const marker = newMarker();
      // Each generation ignores TERM, forks the next into a session of its own, and ends.
      const hop =
        'trap "" TERM; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; [ $1 -lt 400 ] && setsid bash -c "$0" "$0" $(($1+1)) & exit';
      start(
        `bash -c '${hop}' '${hop}' 0; for i in 1 2 3 4 5 6; do bash -c '${hop}' '${hop}' 0 & done`,
        marker,
      );
      await waitFor(async () => (await findProcesses(system, { marker })).length >= 3);
      expect(await endTree(system, { marker, graceMs: 100 })).toEqual([]);
      expect(await findProcesses(system, { marker })).toEqual([]);
    });

    it("endTree() spares the excepted process and ends its marked children", async () => {
      await using system = await createSpawnSystemShell(kind);
      const marker = newMarker();
      const child = start("sleep 300; exec sleep 301", marker);
      const pid = child.pid ?? 0;
      await waitFor(async () => (await findProcesses(system, { marker, exceptPids: [pid] })).length === 1);
      expect(await endTree(system, { marker, exceptPids: [pid] })).toEqual([]);
      expect(await findProcesses(system, { marker, exceptPids: [pid] })).toEqual([]);
      expect(alive(pid)).toBe(true);
    });

    it("endTree() ends roots named by pid with their descendants", async () => {
      await using system = await createSpawnSystemShell(kind);
      const child = start("sleep 300 & setsid sleep 301 & wait", "UNRELATED=1");
      const pids = [child.pid ?? 0];
      const marker = newMarker();
      await waitFor(async () => (await findProcesses(system, { marker, pids })).length === 3);
      const members = await findProcesses(system, { marker, pids });
      expect(await endTree(system, { marker, pids })).toEqual([]);
      expect(members.filter(({ pid }) => alive(pid))).toEqual([]);
    });

    it("findProcesses() tells command lines, and neither zombies nor strangers", async () => {
      await using system = await createSpawnSystemShell(kind);
      const marker = newMarker();
      start("sleep 0 & exec sleep 300", marker);
      start("exec sleep 300", newMarker());
      await waitFor(async () => {
        const found = await findProcesses(system, { marker });
        return found.length === 1 && found[0]?.command === "sleep 300";
      });
      const found = await findProcesses(system, { marker });
      expect(found.map(({ command }) => command)).toEqual(["sleep 300"]);
      await endTree(system, { marker });
    });

    it("findProcesses() refuses a marker that could be shell text", async () => {
      await using system = await createSpawnSystemShell(kind);
      await expect(findProcesses(system, { marker: "A=*" })).rejects.toThrow(RangeError);
    });
  });
}
