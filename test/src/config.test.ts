import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { configPath, parseConfig, readConfig } from "../../src/config.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "moorage-config-"));
});
afterAll(() => rm(folder, { recursive: true }));

describe("parseConfig()", () => {
  it("reads a whole file", async () => {
    const text = [
      "environments:",
      "  here: local",
      "  box:",
      "    spec: docker:node:24?memory=1g",
      "    env: { NODE_ENV: test }",
      "default: box",
      "toolsets: [terminal]",
    ].join("\n");
    expect(await parseConfig(text, "f.yaml")).toEqual({
      environments: { here: "local", box: { spec: "docker:node:24?memory=1g", env: { NODE_ENV: "test" } } },
      default: "box",
      toolsets: ["terminal"],
    });
    expect(await parseConfig("", "f.yaml")).toEqual({});
  });

  it.each([
    ["toolset: [a]", 'f.yaml:1: unknown key "toolset"; did you mean "toolsets"? (there are: environments,'],
    [
      "# note\nenvironments:\n  a:\n    spec: local\n    wrkspace: x",
      'f.yaml:5: unknown key "environments.a.wrkspace"; did you mean "workspace"?',
    ],
    ["toolsets: files", 'f.yaml:1: "toolsets": '],
    ["toolsets:\n  - a\n  - [b]", 'f.yaml:3: "toolsets.1": '],
    [
      "environments:\n  a: docekr:x",
      'f.yaml:2: environment "a": Cannot use environment "docekr:x": unknown backend "docekr"; did you mean "docker"?',
    ],
    ["environments:\n  a: local\ndefault: b", 'f.yaml:3: there is no environment "b"'],
    ["environments:\n  'a b': local", "f.yaml:2: "],
    ["a: 1\na: 2", "f.yaml:2: "],
    ["a: [1", "f.yaml:1: "],
    ["- a", 'f.yaml:1: "the file": '],
    ["text", 'f.yaml:1: "the file": '],
    ["environments:\n  a: 5", 'f.yaml:2: "environments.a": expected string or a map'],
  ])("names line and key of %j", async (text, message) => {
    await expect(parseConfig(text, "f.yaml")).rejects.toMatchObject({
      code: "INVALID_CONFIG",
      message: expect.stringContaining(message),
    });
  });

  it("does not let aliases blow up", async () => {
    const bomb = [
      "a: &a [x,x,x,x,x,x,x,x,x]",
      ...[..."bcdefgh"].map((name, at) => `${name}: &${name} [${`*${"abcdefg"[at]},`.repeat(9)}]`),
    ];
    await expect(parseConfig(bomb.join("\n"), "f.yaml")).rejects.toMatchObject({ code: "INVALID_CONFIG" });
  });
});

describe("readConfig()", () => {
  it("takes paths from the file's own folder", async () => {
    await mkdir(join(folder, "sub"));
    const path = join(folder, "sub", "moorage.yaml");
    await writeFile(
      path,
      "workspace: ../work\ntoolFolders: [tools]\nenvironments: { a: { spec: local, workspace: w } }\n",
    );
    expect(await readConfig(path)).toEqual({
      workspace: join(folder, "work"),
      toolFolders: [join(folder, "sub", "tools")],
      environments: { a: { spec: "local", workspace: join(folder, "sub", "w") } },
    });
  });

  it("fails for a file that was named and is not there, and not for the usual one", async () => {
    const path = join(folder, "none.yaml");
    await expect(readConfig(path)).rejects.toMatchObject({
      code: "INVALID_CONFIG",
      message: expect.stringContaining(path),
    });
    expect(await readConfig(path, false)).toEqual({});
    await expect(readConfig(folder, false)).rejects.toMatchObject({ code: "INVALID_CONFIG" });
    expect(await readConfig("/dev/null/moorage.yaml", false)).toEqual({});
  });

  it("waits for no pipe that nobody writes to, and for no end of a device", async () => {
    const pipe = join(folder, "pipe");
    execFileSync("mkfifo", [pipe]);
    for (const path of [pipe, "/dev/zero"]) {
      await expect(readConfig(path)).rejects.toMatchObject({
        code: "INVALID_CONFIG",
        message: expect.stringContaining("no regular file"),
      });
    }
    expect(await readConfig("/dev/null")).toEqual({});
  });
});

describe("configPath()", () => {
  it("takes the named file, then MOORAGE_CONFIG, then the XDG folder", () => {
    const env = { MOORAGE_CONFIG: "/c.yaml", XDG_CONFIG_HOME: "/x" };
    expect(configPath("n.yaml", env)).toEqual({ path: "n.yaml", isNamed: true });
    expect(configPath(undefined, env)).toEqual({ path: "/c.yaml", isNamed: true });
    expect(configPath(undefined, { XDG_CONFIG_HOME: "/x" })).toEqual({
      path: "/x/moorage/moorage.yaml",
      isNamed: false,
    });
    expect(configPath(undefined, { MOORAGE_CONFIG: "", XDG_CONFIG_HOME: "relative" }).path).toMatch(
      /^\/.*\/\.config\/moorage\/moorage\.yaml$/,
    );
  });
});
