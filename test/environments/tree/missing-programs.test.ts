/** Places that lack programs: what needs them is refused and changes nothing, the rest works. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import type { SystemShell } from "../../../environments/shell/stream.ts";
import { createTree } from "../../../environments/shell/tree/tree.ts";
import { createFileShell } from "../shell/files/file-shell.ts";

const base = realpathSync(mkdtempSync(join(tmpdir(), "moorage-missing-")));
afterAll(() => rmSync(base, { recursive: true, force: true }));

const PROGRAMS =
  "cat chmod date dd find head id mkdir mv readlink rm rmdir sha256sum sh stat touch wc xargs od tr";

it.each(["bash", "dash"] as const)(
  "a tree without tar is told of and captured in %s, and not packed or written",
  async (kind) => {
    const [bin, root] = [join(base, `${kind}-bin`), join(base, kind)];
    for (const folder of [bin, root]) mkdirSync(folder);
    for (const name of PROGRAMS.split(" ")) symlinkSync(`/usr/bin/${name}`, join(bin, name));
    writeFileSync(join(root, "f"), "1");
    await using shell = await createFileShell({ kind, home: base, umask: "022" });
    const poor: SystemShell = {
      home: shell.home,
      shell: shell.shell,
      privateDir: () => shell.privateDir(),
      run: (script, options) => shell.run(`PATH=${bin}\n${script}`, options),
    };
    const tree = createTree(poor, { id: "poor", workspace: () => root });
    expect((await tree.scan(root)).entries.map(({ path }) => path)).toEqual(["f"]);
    expect([...(await tree.hash(root, ["f"])).keys()]).toEqual(["f"]);
    // What has taken a file's place by now is not waited for.
    execFileSync("mkfifo", [join(root, "p")]);
    const { hashes } = await tree.scan(root, { hashed: ["f", "p", "missing"] });
    expect(hashes).toEqual(new Map([["f", createHash("sha256").update("1").digest("hex")]]));
    rmSync(join(root, "p"));
    const [captured] = await tree.capture(["f"], { maxBytes: 10, cwd: root });
    expect(captured?.bytes?.toString()).toBe("1");
    const refusal = { code: "UNSUPPORTED", message: expect.stringContaining("tar") };
    await expect(tree.pack(root, ["f"], async () => undefined)).rejects.toMatchObject(refusal);
    const writer = tree.writer(root);
    await writer.stage({ path: "g", size: 1, mode: 0o644, modifiedAt: 1 }, [Buffer.from("2")]);
    await expect(writer.finish({ remove: ["f"] })).rejects.toMatchObject(refusal);
    expect(readdirSync(root)).toEqual(["f"]);
    // Removing, folders and modes need no archive.
    const outcome = await tree.writer(root).finish({ remove: ["f"], folders: [{ path: "d", mode: 0o700 }] });
    expect(outcome).toEqual({ done: ["f", "d"], failed: [] });
    // With a tar, and no base64 that would bring it a few files in less time.
    symlinkSync("/usr/bin/tar", join(bin, "tar"));
    const other = tree.writer(root);
    await other.stage({ path: "g", size: 1, mode: 0o644, modifiedAt: 1 }, [Buffer.from("2")]);
    expect(await other.finish({})).toEqual({ done: ["g"], failed: [] });
  },
);
