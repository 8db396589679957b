import { readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { moor, privateHome, temporaryFolder } from "./moor.ts";

it("moor checkpoints works on the checkpoint's own folder, and on another one only on purpose", async () => {
  const env = privateHome();
  const [own, other] = [realpathSync(temporaryFolder()), realpathSync(temporaryFolder())];
  for (const folder of [own, other]) writeFileSync(join(folder, "a"), `1 of ${folder}\n`);
  const args = JSON.stringify({ path: "a", content: "2\n" });
  const call = await moor(["call", "write_file", args, "-e", "local", "--workspace", own], { env });
  const { checkpoint: id } = JSON.parse(call.stdout);
  const texts = () => [own, other].map((folder) => readFileSync(join(folder, "a"), "utf8"));
  const run = (...words: string[]) => moor(["checkpoints", ...words], { env, cwd: other });

  const refused = await run("restore", id, "-e", "local");
  expect(refused).toMatchObject({ exitCode: 125, stdout: "" });
  expect(refused.stderr).toContain(
    `Cannot use ${id} on "host:${other}": it is a checkpoint of "host:${own}"`,
  );
  expect(refused.stderr).toContain("--other-place");
  expect(texts()).toEqual(["2\n", `1 of ${other}\n`]);

  expect((await run("diff", id)).stdout).toContain(`-1 of ${own}\n+2\n`);
  const restored = await run("restore", id);
  expect(restored).toMatchObject({ exitCode: 0, stdout: "restored  a\n" });
  expect(texts()).toEqual([`1 of ${own}\n`, `1 of ${other}\n`]);
  const [, undo = ""] = /`moor checkpoints (.*)` undoes this/.exec(restored.stderr) ?? [];
  expect(await run(...undo.split(" "))).toMatchObject({ exitCode: 0, stdout: "restored  a\n" });
  expect(texts()).toEqual(["2\n", `1 of ${other}\n`]);

  expect(await run("restore", id, "-e", "local", "--other-place")).toMatchObject({ exitCode: 0 });
  expect(texts()).toEqual(["2\n", `1 of ${own}\n`]);

  const none = realpathSync(temporaryFolder());
  const empty = await run("list", "--workspace", none);
  expect(empty).toMatchObject({ exitCode: 0, stdout: "" });
  expect(empty.stderr).toMatch(
    new RegExp(
      `^moor: There are no checkpoints of ${none}\nmoor: \`moor checkpoints list\` shows [3-9] of other`,
    ),
  );
  const nowhere = await run("list", "--workspace", join(none, "x"));
  expect(nowhere).toMatchObject({ exitCode: 125, stdout: "" });
  expect(nowhere.stderr).toContain(`There is no folder "${none}/x"`);

  // A folder that is gone has checkpoints all the same.
  rmSync(own, { recursive: true });
  const listed = await run("list", "--workspace", `${own}/`);
  expect(listed).toMatchObject({ exitCode: 0, stdout: expect.stringContaining(id) });
});
