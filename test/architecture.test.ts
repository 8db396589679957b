import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { parseSync } from "oxc-parser";
import { describe, expect, it } from "vitest";

const ROOT = join(import.meta.dirname, "..");

/** Layer, and what it may import of ours; the first match wins. */
const RULES: readonly (readonly [layer: RegExp, allowed: RegExp])[] = [
  [/^src\/(errors|limits|folders|line-ends)\.ts$/, /^$/],
  [
    /^environments\/(base|spec|tree\/(?:names|content))\.ts$/,
    /^src\/(errors|limits)\.ts$|^environments\/base\.ts$/,
  ],
  [/^environments\//, /^environments\/|^src\/(errors|limits|folders|line-ends)\.ts$/],
  [/^src\/(index|moorage|places|testing)\.ts$/, /./],
  // Surfaces stand on the composition root, and look after what dead owners of environments left behind.
  [/^src\/(cli|mcp)\//, /^src\/|^environments\/(base|upkeep|tree\/names)\.ts$|^images\//],
  [
    /^src\//,
    /^src\/(?!index\.|moorage\.|places\.|cli\/|mcp\/)|^environments\/(base|spec|owner|tree\/(?:names|content|ignore-rules))\.ts$/,
  ],
  [/^tools\//, /^tools\/|^environments\/base\.ts$|^src\/(errors|limits|line-ends|registry|budget)\.ts$/],
];

const files = ["src", "environments", "tools"].flatMap((folder) =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .map((name) => join(folder, name)),
);

/** What a file imports of ours, by path from the root; types too, since a type ties as much as a value. */
function importsOf(file: string): readonly string[] {
  const { module } = parseSync(file, readFileSync(join(ROOT, file), "utf8"));
  const specifiers = [
    ...module.staticImports.map(({ moduleRequest }) => moduleRequest.value),
    ...module.staticExports.flatMap(({ entries }) =>
      entries.flatMap(({ moduleRequest }) => moduleRequest?.value ?? []),
    ),
    ...module.dynamicImports.map(({ moduleRequest }) =>
      readFileSync(join(ROOT, file), "utf8").slice(moduleRequest.start + 1, moduleRequest.end - 1),
    ),
  ];
  return specifiers
    .filter((specifier) => specifier.startsWith("."))
    .map((specifier) => relative(ROOT, join(ROOT, dirname(file), specifier)));
}

describe("architecture", () => {
  it("has files in every layer", () => {
    for (const [layer] of RULES) expect(files.some((file) => layer.test(file))).toBe(true);
  });

  it.each(files)("%s imports only the layers below it", (file) => {
    const [, allowed] = RULES.find(([layer]) => layer.test(file)) ?? [];
    expect(importsOf(file).filter((path) => !allowed?.test(path))).toEqual([]);
  });

  it.each(files)("%s has a kebab-case name and no default export", (file) => {
    expect(file).toMatch(/^(?:[a-z0-9]+(?:-[a-z0-9]+)*\/)+[a-z0-9]+(?:-[a-z0-9]+)*\.ts$/);
    const { module } = parseSync(file, readFileSync(join(ROOT, file), "utf8"));
    const exported = module.staticExports.flatMap(({ entries }) =>
      entries.map((entry) => entry.exportName.kind),
    );
    expect(exported).not.toContain("Default");
  });

  it("sees every kind of import", () => {
    expect(importsOf("src/places.ts")).toContain("environments/backends.ts");
    expect(importsOf("environments/backends.ts")).toContain("environments/docker/index.ts");
    expect(importsOf("src/index.ts")).toContain("src/errors.ts");
  });
});
