/**
 * Builds the package into `dist/`: the sources as JavaScript with declarations, a `package.json` that points at them
 * and the files that go along. The repository itself runs unbuilt and is private; `npm publish ./dist` and `npm pack
 * ./dist` take this folder.
 */

import { execFileSync } from "node:child_process";
import { chmodSync, cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const ROOT = join(import.meta.dirname, "..");
const DIST = join(ROOT, "dist");

/** `./src/index.ts` becomes the built file and its declarations. */
function built(target: string) {
  return { types: target.replace(/\.ts$/, ".d.ts"), default: target.replace(/\.ts$/, ".js") };
}

rmSync(DIST, { recursive: true, force: true });
execFileSync(
  process.execPath,
  [join(ROOT, "node_modules", ".bin", "tsc"), "-p", join(ROOT, "tsconfig.build.json")],
  {
    stdio: "inherit",
    cwd: ROOT,
  },
);

const manifest = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
const { devDependencies: _, scripts: __, private: ___, ...rest } = manifest;
const exports = Object.fromEntries(
  Object.entries<string>(manifest.exports).map(([name, target]) => [name, built(target)]),
);
writeFileSync(join(DIST, "package.json"), `${JSON.stringify({ ...rest, exports }, null, 2)}\n`);

mkdirSync(join(DIST, "bin"));
cpSync(join(ROOT, "bin", "moor"), join(DIST, "bin", "moor"));
chmodSync(join(DIST, "bin", "moor"), 0o755);
const entry = readFileSync(join(ROOT, "bin", "moor.mjs"), "utf8");
writeFileSync(join(DIST, "bin", "moor.mjs"), entry.replace("../src/cli/main.ts", "../src/cli/main.js"));
cpSync(join(ROOT, "images"), join(DIST, "images"), {
  recursive: true,
  filter: (path) => !path.endsWith(".ts"),
});
for (const name of [
  "README.md",
  "ARCHITECTURE.md",
  "CHANGELOG.md",
  "SECURITY.md",
  "THREAT_MODEL.md",
  "LICENSE",
  "docs",
]) {
  cpSync(join(ROOT, name), join(DIST, name), { recursive: true, filter: (path) => !path.endsWith(".ts") });
}
