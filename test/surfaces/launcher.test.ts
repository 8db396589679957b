import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync, cpSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import packageJson from "../../package.json" with { type: "json" };
import { MOOR, moor, privateHome, temporaryFolder } from "./moor.ts";

/** A folder for PATH with a `node` that says it is of this version, and does nothing else. */
function fakeNode(version: string): string {
  const folder = temporaryFolder();
  writeFileSync(join(folder, "node"), `#!/bin/sh\necho ${version}\n`);
  chmodSync(join(folder, "node"), 0o755);
  return folder;
}

const SYSTEM = "/usr/bin:/bin";
const VERSION = `${packageJson.version}\n`;

describe("bin/moor", () => {
  it("prints the package's version", async () => {
    expect(await moor(["--version"])).toEqual({ exitCode: 0, signal: null, stdout: VERSION, stderr: "" });
    expect(await moor(["-V"])).toEqual({ exitCode: 0, signal: null, stdout: VERSION, stderr: "" });
    expect(
      await moor(["exec", "-e", "local", "--", "printf", "%s", "--version"], { env: privateHome() }),
    ).toMatchObject({
      stdout: "--version",
    });
  });

  it.each(["v20.19.0", "v22.17.1", "v9.11.2", "v18.0.0", "oops"])(
    "passes over a node on PATH that says %s",
    async (version) => {
      const outcome = await moor(["--help"], { env: { PATH: `${fakeNode(version)}:${SYSTEM}` } });
      expect(outcome).toMatchObject({
        exitCode: 0,
        stdout: expect.stringMatching(/^Usage: moor/),
        stderr: "",
      });
    },
  );

  it.each(["v22.18.0", "v24.0.0", "v100.1.2"])(
    "takes a node on PATH that says %s",
    { tags: ["slow"] },
    async (version) => {
      const outcome = await moor(["--help"], { env: { PATH: `${fakeNode(version)}:${SYSTEM}` } });
      expect(outcome.stdout).toBe(`${version}\n`);
    },
  );

  it("takes neither code nor configuration from the current folder where there is no home", async () => {
    const cwd = temporaryFolder();
    mkdirSync(join(cwd, ".config/moorage"), { recursive: true });
    writeFileSync(join(cwd, ".config/moorage/moorage.yaml"), "environments: { planted: local }\n");
    const { MOORAGE_HOME = "" } = privateHome();
    const env = { HOME: "", XDG_CACHE_HOME: "", XDG_CONFIG_HOME: "", MOORAGE_HOME };
    const { stderr } = await moor(["exec", "-e", "planted", "--", "true"], { env, cwd });
    expect(stderr).toContain('There is no environment "planted"');
    expect(readdirSync(cwd)).toEqual([".config"]);
  });

  it("follows links to itself, absolute and relative, through odd names", { tags: ["slow"] }, async () => {
    const folder = join(temporaryFolder(), "-odd name's");
    mkdirSync(folder);
    symlinkSync(MOOR, join(folder, "absolute"));
    symlinkSync("absolute", join(folder, "relative"));
    for (const [command, cwd] of [
      [MOOR, "/"],
      [join(folder, "absolute"), "/"],
      [join(folder, "relative"), "/"],
      ["./relative", folder],
    ]) {
      expect(execFileSync(command ?? "", ["--version"], { cwd, encoding: "utf8" })).toBe(VERSION);
      expect(execFileSync(command ?? "", ["--help"], { cwd, encoding: "utf8" })).toMatch(/^Usage: moor/);
    }
    const found = spawnSync("sh", ["-c", "absolute --version"], {
      env: { PATH: `${folder}:${dirname(process.execPath)}:${SYSTEM}` },
      encoding: "utf8",
    });
    expect(found.stdout).toBe(VERSION);
  });

  it("says what to do when there is no node at all", () => {
    const alone = temporaryFolder();
    mkdirSync(join(alone, "bin"));
    execFileSync("cp", [MOOR, join(alone, "bin", "moor")]);
    const { status, stdout, stderr } = spawnSync(join(alone, "bin", "moor"), ["--help"], {
      env: { PATH: `${fakeNode("v20.0.0")}:/nowhere` },
      encoding: "utf8",
    });
    expect({ status, stdout }).toEqual({ status: 125, stdout: "" });
    expect(stderr).toContain("moor: ENVIRONMENT_UNAVAILABLE: No Node 22.18 or newer was found");
    expect(stderr).toContain("npm install");
  });

  it("says what to do when its packages are not installed", () => {
    const checkout = temporaryFolder();
    for (const part of ["bin", "src", "environments", "images", "package.json"]) {
      cpSync(join(dirname(MOOR), "..", part), join(checkout, part), { recursive: true });
    }
    const { status, stdout, stderr } = spawnSync(join(checkout, "bin", "moor"), ["--help"], {
      env: { PATH: `${dirname(process.execPath)}:${SYSTEM}` },
      encoding: "utf8",
    });
    expect({ status, stdout }).toEqual({ status: 125, stdout: "" });
    expect(stderr.trimEnd().split("\n")).toEqual([
      expect.stringMatching(/^moor: ENVIRONMENT_UNAVAILABLE: .*package "\w+" is not installed$/),
      expect.stringContaining("Run `npm install` in "),
    ]);
  });

  it("needs nothing of PATH, and tells what a command would need of it", async () => {
    const env = { ...privateHome(), PATH: "/nowhere" };
    expect(await moor(["--help"], { env })).toMatchObject({ exitCode: 0, stderr: "" });
    const { exitCode, stderr } = await moor(["exec", "-e", "local", "-c", "ls"], { env });
    expect({ exitCode, stderr }).toEqual({
      exitCode: 125,
      stderr: expect.stringMatching(/^moor: SHELL_MISSING: [^\n]*\n[^\n]*\n$/),
    });
  });

  it("works without a home that can be written", async () => {
    const outcome = await moor(["--help"], { env: { HOME: "/proc/nowhere", XDG_CACHE_HOME: "" } });
    expect(outcome).toMatchObject({ exitCode: 0, stderr: "" });
  });
});
