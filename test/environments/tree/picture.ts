/** What a folder holds, to be compared: by looking at the host's disk, or through an environment. */
import { lstatSync, mkdirSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import type { BaseEnvironment } from "../../../environments/base.ts";

/** By path, one character per byte: kind, mode and content in one text. */
export type Picture = Readonly<Record<string, string>>;

/** @param modeBits that count: a mirror carries permissions alone, a restore all bits. @default 0o7777 */
export function picture(folder: string, modeBits = 0o7777): Picture {
  const found: Record<string, string> = {};
  // By hand: the recursive listing enters links to folders.
  const names = readdirSync(folder, { encoding: "latin1" });
  for (let name = names.pop(); name !== undefined; name = names.pop()) {
    const path = Buffer.concat([Buffer.from(`${folder}/`), Buffer.from(name, "latin1")]);
    const stat = lstatSync(path);
    const mode = (stat.mode & modeBits).toString(8);
    if (stat.isSymbolicLink()) found[name] = `-> ${readlinkSync(path, "latin1")}`;
    else if (stat.isDirectory()) {
      found[name] = `dir ${mode}`;
      for (const inner of readdirSync(path, { encoding: "latin1" })) names.push(`${name}/${inner}`);
    } else found[name] = `file ${mode} ${stat.isFile() ? readFileSync(path, "latin1") : "special"}`;
  }
  return sorted(found);
}

/** The same of an environment's workspace. */
export async function pictureOf({ tree, workspace }: BaseEnvironment, modeBits = 0o7777): Promise<Picture> {
  const { entries, root } = await tree.scan(workspace);
  const found: Record<string, string> = {};
  const modes = new Map(entries.map(({ path, mode }) => [path, (mode & modeBits).toString(8)]));
  for (const { path, kind, linkTarget } of entries) {
    if (kind === "symlink") found[path] = `-> ${linkTarget}`;
    else found[path] = kind === "directory" ? `dir ${modes.get(path)}` : `file ${modes.get(path)} special`;
  }
  const files = entries.filter(({ kind }) => kind === "file").map(({ path }) => path);
  await tree.pack(root, files, async ({ path, content }) => {
    const chunks: Buffer[] = [];
    for await (const chunk of content) chunks.push(chunk);
    found[path] = `file ${modes.get(path)} ${Buffer.concat(chunks).toString("latin1")}`;
  });
  return sorted(found);
}

/** Writes a file, and the folders on its way. */
export function write(path: string, content: string): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, content);
}

/** Numbers that are the same on every run of a seed, each below the one that is given. */
export function randomFrom(seed: number): (below: number) => number {
  let state = seed >>> 0 || 1;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** Picks one of several by such numbers. */
export function pickerFrom(random: (below: number) => number): <Value>(values: readonly Value[]) => Value {
  return (values) => {
    const value = values[random(values.length)];
    if (value === undefined) throw new RangeError("There is nothing to pick from");
    return value;
  };
}

function sorted(found: Record<string, string>): Picture {
  return Object.fromEntries(Object.entries(found).sort(([a], [b]) => (a < b ? -1 : 1)));
}
