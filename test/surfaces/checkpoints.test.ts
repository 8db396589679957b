import { mkdirSync, readFileSync, realpathSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { limits } from "../../src/limits.ts";
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

it("moor checkpoints says that all of a folder is restored from below it, and takes paths as seen from there", async () => {
  const env = privateHome();
  const top = realpathSync(temporaryFolder());
  const sub = join(top, "sub dir");
  mkdirSync(sub);
  const files = [join(top, "a"), join(sub, "a")];
  const write = (text: string) => {
    for (const file of files) writeFileSync(file, text);
  };
  const texts = () => files.map((file) => readFileSync(file, "utf8"));
  const moorIn = (cwd: string, ...words: string[]) => moor(["checkpoints", ...words], { env, cwd });
  write("1\n");
  const id = (await moorIn(top, "create", "-e", "local", "--workspace", top)).stdout.trim();

  write("2\n");
  const one = await moorIn(sub, "restore", id, "a");
  expect(one).toMatchObject({ exitCode: 0, stdout: "restored  sub dir/a\n" });
  expect(one.stderr).not.toContain("All of");
  expect(texts()).toEqual(["2\n", "1\n"]);
  expect((await moorIn(sub, "diff", id, "a")).stdout).toBe("");
  expect((await moorIn(sub, "diff", id, "../a")).stdout).toContain("-1\n+2\n");
  expect((await moorIn(sub, "restore", id, "../../a")).exitCode).toBe(125);
  expect(await moorIn(sub, "restore", id, "../a")).toMatchObject({ exitCode: 0, stdout: "restored  a\n" });

  write("3\n");
  const dry = await moorIn(sub, "restore", id, "--dry-run");
  expect(dry.stderr).toContain(`moor: All of ${top} would be restored, not sub dir alone\n`);
  const all = await moorIn(sub, "restore", id);
  expect(all.stderr).toContain(`moor: All of ${top} is restored, not sub dir alone\n`);
  expect(texts()).toEqual(["1\n", "1\n"]);
  expect((await moorIn(top, "restore", id)).stderr).not.toContain("All of");

  const refused = await moorIn(sub, "restore", id, "-e", "local");
  expect(refused.exitCode).toBe(125);
  expect(refused.stderr).toContain(`\`moor checkpoints restore ${id} 'sub dir'\` in "${top}"`);
});

it("moor checkpoints names twenty of many paths that it left out", async () => {
  const env = privateHome();
  const folder = realpathSync(temporaryFolder());
  for (let index = 0; index < 23; index += 1) {
    const path = join(folder, `large-${index}`);
    writeFileSync(path, "");
    truncateSync(path, limits.checkpointFileMaxBytes + 1);
  }
  const made = await moor(["checkpoints", "create", "-e", "local", "--workspace", folder], { env });
  expect(made).toMatchObject({ exitCode: 0 });
  expect(made.stderr.match(/^moor: Left out: large-/gm)).toHaveLength(20);
  expect(made.stderr).toContain("moor: and 3 more, which --json lists\n");
  const shown = await moor(["checkpoints", "show", made.stdout.trim()], { env });
  expect(shown.stdout.match(/^ {2}left out {2}large-/gm)).toHaveLength(20);
  const { skipped } = JSON.parse(
    (await moor(["checkpoints", "show", made.stdout.trim(), "--json"], { env })).stdout,
  );
  expect(skipped).toHaveLength(23);
});

it("--sync says which of several environments has the folder", async () => {
  const env = privateHome();
  const [here, there] = [realpathSync(temporaryFolder()), realpathSync(temporaryFolder())];
  writeFileSync(join(here, "a"), "a\n");
  const places = ["-e", `first=local?workspace=${there}`, "-e", `second=local?workspace=${there}`];
  const call = await moor(["call", "terminal", '{"command":"ls"}', ...places, "--sync", here], { env });
  expect(call.stderr).toContain(`moor: ${here} is mirrored with the first environment alone, "first"`);
  expect(JSON.parse(call.stdout)).toMatchObject({ output: "a\n" });
});
