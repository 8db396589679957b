import { chmodSync, mkdirSync, mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe } from "vitest";
import { createTree } from "../../../environments/shell/tree.ts";
import { createHostTree } from "../../../environments/tree/host.ts";
import { slowUnless } from "../../slow.ts";
import { createFileShell, type FileShell } from "../shell/file-shell.ts";
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
