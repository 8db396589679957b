import { readFileSync } from "node:fs";
import { join, relative } from "node:path";
import picomatch from "picomatch";
import { describe, expect, it } from "vitest";
import { discoverTools } from "../src/discovery.ts";

const ROOT = join(import.meta.dirname, "..");
const { sideEffects } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));

describe("the package", () => {
  it("tells bundlers that every tool module, and only those, must be kept for what importing it does", async () => {
    const { modules, problems } = await discoverTools({ folders: [join(ROOT, "tools")] });
    expect(problems).toEqual([]);
    const paths = modules.map((path) => relative(ROOT, path));
    expect(paths).toEqual(
      expect.arrayContaining(["tools/read-file.ts", "tools/terminal.ts", "tools/write-file.ts"]),
    );
    const isKept = picomatch(sideEffects);
    expect(
      paths.filter(
        (path) => !isKept(path) || !isKept(`node_modules/moorage/dist/${path.replace(".ts", ".js")}`),
      ),
    ).toEqual([]);
    expect(isKept("src/index.ts")).toBe(false);
  });
});
