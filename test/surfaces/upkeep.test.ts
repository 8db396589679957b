import { describe, expect, it } from "vitest";
import { moor, outcome, privateHome, startMoor, until } from "./moor.ts";
import { pidsOf, uniqueSleep } from "./processes.ts";

/** A machine without an engine. */
const NO_ENGINE = { DOCKER_HOST: "unix:///nowhere/engine.sock" };

describe("moor ps and moor reap on this machine", () => {
  it("show what lives and who owns it, and end only what is orphaned", async () => {
    const env = { ...privateHome(), ...NO_ENGINE };
    const sleep = uniqueSleep();
    const child = startMoor(["exec", "-e", "local", "--shell", `setsid ${sleep} & ${sleep}`], { env });
    const ended = outcome(child);
    await until("both run", () => pidsOf(sleep).length === 2);

    const list = async (): Promise<readonly { owner: string; processes: { command: string }[] }[]> => {
      const { exitCode, stdout, stderr } = await moor(["ps", "--json"], { env });
      expect(exitCode).toBe(0);
      expect(stderr).toContain("moor: docker was not asked: ");
      return JSON.parse(stdout).environments;
    };
    const [live, ...others] = await list();
    expect(others).toEqual([]);
    expect(live).toMatchObject({ backend: "local", owner: "live", keep: false });
    expect(live?.processes.filter(({ command }) => command === sleep)).toHaveLength(2);

    expect(JSON.parse((await moor(["reap", "--json"], { env })).stdout)).toEqual({ reaped: [] });
    expect(pidsOf(sleep)).toHaveLength(2);

    child.kill("SIGKILL");
    await ended;
    await moor(["reap"], { env });
    await until("none is left", () => pidsOf(sleep).length === 0);
    expect(await list()).toEqual([]);
  });

  it("keep what was to be kept until it is named", async () => {
    const env = { ...privateHome(), ...NO_ENGINE };
    const sleep = uniqueSleep();
    const renamed = `(exec -a "$(printf 'x\\033[2J')" sleep 4000) &`;
    const start = JSON.stringify({ command: `${renamed} ${sleep}`, background: true });
    const kept = ["call", "terminal", start, "-e", "local?keep&id=kept-by-name"];
    expect(await moor(kept, { env })).toMatchObject({ exitCode: 0 });
    await moor(["reap"], { env });
    expect(pidsOf(sleep)).toHaveLength(1);
    const listed = (await moor(["ps"], { env })).stdout;
    expect(listed).toMatch(/^kept-by-name {2}local +kept .* this machine, \//m);
    // A name moves nobody's cursor.
    expect(listed).toContain("x\\u001b[2J");

    const asked = await moor(["reap", "kept-by-name", "nobody"], { env });
    expect(asked).toMatchObject({
      exitCode: 1,
      stdout: expect.stringMatching(/^kept-by-name {2}local {2}process /),
    });
    expect(asked.stderr).toContain('Not removed: "nobody" is no environment without a living owner');
    expect(pidsOf(sleep)).toEqual([]);
    expect((await moor(["ps"], { env })).stdout).toBe("");
  });

  it("are content with a machine on which nothing was ever started", async () => {
    const env = { ...privateHome(), ...NO_ENGINE };
    expect(await moor(["ps"], { env })).toMatchObject({ exitCode: 0, stdout: "" });
    expect(await moor(["reap"], { env })).toMatchObject({ exitCode: 0, stdout: "" });
  });
});

interface Finding {
  readonly name: string;
}

describe("moor doctor on this machine", () => {
  it("finds local well and says what to do about an engine that is not there", async () => {
    const env = { ...privateHome(), ...NO_ENGINE };
    const { exitCode, stdout } = await moor(["doctor", "-e", "local", "--json"], { env });
    const { backends, environments, tools } = JSON.parse(stdout);
    expect(exitCode).toBe(0);
    const named = (backend: string) => backends.find(({ name }: Finding) => name.startsWith(`${backend} (`));
    expect(named("local")).toMatchObject({ works: true, suggestion: null });
    expect(named("bubblewrap")).toMatchObject({ works: expect.any(Boolean), reason: expect.any(String) });
    expect(named("docker")).toMatchObject({
      works: false,
      reason: expect.stringMatching(/^DOCKER_UNREACHABLE: /),
      suggestion: expect.any(String),
    });
    expect(environments).toMatchObject([{ name: "local", works: true }]);
    expect(tools.length).toBeGreaterThan(3);
  });

  it("ends with 1 when an environment that is named does not work", async () => {
    const env = { ...privateHome(), ...NO_ENGINE };
    const { exitCode, stdout } = await moor(["doctor", "-e", "local", "-e", "docker:busybox"], { env });
    expect(exitCode).toBe(1);
    // What is to be said of several tools is said once.
    expect(stdout).toMatch(/^ {2}ok {2}patch, process, read_file, .* listed$/m);
    expect(stdout).toMatch(/^ {2}ok {2}local /m);
    expect(stdout).toMatch(/^ {2}no {2}docker .*DOCKER_UNREACHABLE/m);
  });
});
