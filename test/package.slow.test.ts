/** The package as others get it: built, packed, and unpacked where Node strips no types. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const ROOT = join(import.meta.dirname, "..");
const folder = mkdtempSync(join(tmpdir(), "moorage-package-"));
const modules = join(folder, "node_modules");

beforeAll(() => {
  execFileSync(process.execPath, [join(ROOT, ".ci/build.ts")], { cwd: ROOT });
  const packed = execFileSync("npm", ["pack", join(ROOT, "dist"), "--json"], {
    cwd: folder,
    encoding: "utf8",
  });
  const [{ filename }] = JSON.parse(packed);
  // Its dependencies are linked from here, so that the test needs no registry.
  mkdirSync(join(modules, "moorage"), { recursive: true });
  for (const name of readdirSync(join(ROOT, "node_modules"))) {
    if (!name.startsWith(".") && name !== "moorage")
      symlinkSync(join(ROOT, "node_modules", name), join(modules, name));
  }
  execFileSync("tar", ["-xzf", filename, "-C", join(modules, "moorage"), "--strip-components=1"], {
    cwd: folder,
  });
}, 120_000);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function node(code: string): string {
  const path = join(folder, "program.mjs");
  writeFileSync(path, code);
  return execFileSync(process.execPath, [path], { cwd: folder, encoding: "utf8" });
}

describe("the packed package", () => {
  it("has every built-in tool, and they work", () => {
    const printed = node(`import { createMoorage } from "moorage";
await using moorage = await createMoorage({ environments: "local", stateDir: ${JSON.stringify(join(folder, "state"))} });
const { visible } = await moorage.tools();
const { content } = await moorage.call({ name: "terminal", arguments: { command: "echo hi" } });
console.log(JSON.stringify({ names: visible.map(({ name }) => name), output: content.output }));`);
    expect(JSON.parse(printed)).toEqual({
      names: ["patch", "process", "read_file", "search_files", "terminal", "write_file"],
      output: "hi\n",
    });
  });

  it("brings the command", () => {
    const moor = join(modules, "moorage", "bin", "moor");
    expect(execFileSync(moor, ["exec", "-e", "local", "--", "echo", "hi"], { encoding: "utf8" })).toBe(
      "hi\n",
    );
  });

  it("holds no sources that Node would have to strip, and no tests but the conformance suite", () => {
    const files = readdirSync(join(modules, "moorage"), { recursive: true, encoding: "utf8" });
    expect(files.filter((name) => /(?<!\.d)\.ts$/.test(name))).toEqual([]);
    expect(files.filter((name) => name.startsWith("test/") && !name.startsWith("test/conformance"))).toEqual(
      [],
    );
  });
});
