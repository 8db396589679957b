import { spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createTree } from "../../../environments/shell/tree/tree.ts";
import { createHostTree } from "../../../environments/tree/host.ts";
import { decodeTar } from "../../../environments/tree/tar.ts";
import { slowUnless } from "../../slow.ts";
import { createFileShell, type FileShell } from "../shell/files/file-shell.ts";
import { treeCases } from "./cases.ts";

const base = realpathSync(mkdtempSync(join(tmpdir(), "moorage-tree-")));
chmodSync(base, 0o755);
process.umask(0o022);
let count = 0;
const fresh = () => {
  const folder = join(base, String(count++));
  mkdirSync(folder);
  return folder;
};
afterAll(() => rmSync(base, { recursive: true, force: true }));

describe("tree of the host", () => {
  const tree = createHostTree();
  treeCases(() => ({ tree, fresh }));
});

it("writer() of the host leaves a folder closed that was closed before", ({ skip }) => {
  const root = fresh();
  for (const folder of ["shut", "shut/in"]) mkdirSync(join(root, folder));
  writeFileSync(join(root, "shut/in/file"), "1");
  chmodSync(join(root, "shut/in"), 0o511);
  chmodSync(join(root, "shut"), 0o555);
  const isRoot = process.getuid?.() === 0;
  if (isRoot)
    for (const path of ["", "shut", "shut/in", "shut/in/file"]) chownSync(join(root, path), 65534, 65534);
  const asOther = (script: string) =>
    spawnSync(process.execPath, ["--input-type=module", "-e", script], {
      ...(isRoot && { uid: 65534, gid: 65534 }),
      cwd: "/",
      encoding: "utf8",
      env: { PATH: process.env.PATH },
    });
  const module = JSON.stringify(join(import.meta.dirname, "../../../environments/tree/host.ts"));
  skip(asOther(`import ${module}`).status !== 0, "another account cannot read the sources");
  const { stdout, stderr } = asOther(`
    import { createHostTree } from ${module};
    const writer = createHostTree().writer(${JSON.stringify(root)});
    await writer.stage({ path: "shut/in/new", size: 1, mode: 0o644, modifiedAt: 7 }, [Buffer.from("2")]);
    console.log(JSON.stringify(await writer.finish({ remove: ["shut/in/file"] })));`);
  const told = stdout === "" ? stderr : JSON.parse(stdout);
  expect(told).toEqual({ done: ["shut/in/file", "shut/in/new"], failed: [] });
  const modes = ["shut", "shut/in"].map((path) => statSync(join(root, path)).mode & 0o777);
  expect(modes).toEqual([0o555, 0o511]);
});

for (const kind of ["bash", "dash", "busybox"] as const) {
  describe(`tree in ${kind}`, slowUnless(kind === "bash"), () => {
    let shell: FileShell;
    beforeAll(async () => {
      shell = await createFileShell({ kind, home: base, umask: "022" });
    });
    afterAll(() => shell[Symbol.asyncDispose]());
    treeCases(() => ({ tree: createTree(shell, { id: "tree", workspace: () => base }), fresh }));
  });
}

it("writer() of an environment puts many files into folders that were there already", async () => {
  await using shell = await createFileShell({ kind: "bash", home: base, umask: "022" });
  const tree = createTree(shell, { id: "tree", workspace: () => base });
  const root = fresh();
  mkdirSync(join(root, "there", "old"), { recursive: true });
  writeFileSync(join(root, "there", "old", "kept"), "kept");
  // So that the writer knows of a find that tells everything.
  await tree.scan(root);
  const writer = tree.writer(root);
  const paths = Array.from(
    { length: 600 },
    (_, index) => `${["there", "there/old", "new"][index % 3]}/${index}`,
  );
  for (const path of paths)
    await writer.stage({ path, size: path.length, mode: 0o640, modifiedAt: 7 }, [Buffer.from(path)]);
  const folders = ["there", "there/old", "new"].map((path) => ({ path, mode: 0o750 }));
  const { done, failed } = await writer.finish({ folders });
  expect({ done: [...done].sort(), failed }).toEqual({
    done: [...paths, ...folders.map(({ path }) => path)].sort(),
    failed: [],
  });
  for (const path of paths) expect(readFileSync(join(root, path), "utf8")).toBe(path);
  expect(readFileSync(join(root, "there", "old", "kept"), "utf8")).toBe("kept");
  expect(readdirSync(root).sort()).toEqual(["new", "there"]);
  for (const { path } of folders) expect(statSync(join(root, path)).mode & 0o777).toBe(0o750);
});

it("writer() of an environment unpacks side by side only what names its own folders", async () => {
  await using shell = await createFileShell({ kind: "bash", home: base, umask: "022" });
  const archives: Uint8Array[] = [];
  let [running, most] = [0, 0];
  const run: FileShell["run"] = async (script, options) => {
    if (options?.stdin && script.includes("tar -x")) archives.push(Uint8Array.from(options.stdin));
    // The first one, which makes the folder for the others, is alone.
    if (archives.length === 2) expect(running).toBe(0);
    running += 1;
    most = Math.max(most, running);
    return shell.run(script, options).finally(() => {
      running -= 1;
    });
  };
  const system = { run, home: shell.home, shell: shell.shell, privateDir: () => shell.privateDir() };
  const tree = createTree(system, { id: "tree", workspace: () => base });
  const writer = tree.writer(fresh());
  const bytes = Buffer.alloc(10_000, "x");
  for (let index = 0; index < 600; index += 1)
    await writer.stage(
      { path: `${index % 7}/deep/${index}`, size: bytes.length, mode: 0o644, modifiedAt: 1 },
      [bytes],
    );
  expect((await writer.finish({})).failed).toEqual([]);
  expect(most).toBe(2);
  expect(archives.length).toBeGreaterThan(3);
  for (const archive of archives.slice(1)) {
    const named = new Set([""]);
    for await (const { path } of decodeTar(
      (async function* () {
        yield Buffer.from(archive);
      })(),
    )) {
      if (!path.startsWith(".moorage-"))
        expect(named).toContain(path.slice(0, Math.max(0, path.lastIndexOf("/"))));
      named.add(path);
    }
  }
});
