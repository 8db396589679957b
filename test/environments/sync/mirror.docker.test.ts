/** Mirror and checkpoints in containers that see nothing of the host: one with GNU programs, one with BusyBox alone. */
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, inject, it } from "vitest";
import { createDockerEnvironment } from "../../../environments/docker/index.ts";
import { mirror } from "../../../environments/sync/mirror.ts";
import { createMoorage } from "../../../src/moorage.ts";
import { BUSYBOX_IMAGE, WORKBENCH_IMAGE } from "../../host/images.ts";
import { slowUnless } from "../../slow.ts";
import { ODD_NAMES } from "../tree/cases.ts";

const engine = inject("engine");
const base = mkdtempSync(join(tmpdir(), "moorage-mirror-"));
afterAll(() => rmSync(base, { recursive: true, force: true }));
let count = 0;
const folder = () => {
  const path = join(base, String(count++));
  mkdirSync(path);
  return path;
};
const title = engine.available ? "" : ` (not tested: ${engine.reason})`;

for (const image of [WORKBENCH_IMAGE, BUSYBOX_IMAGE]) {
  describe.skipIf(!engine.available)(
    `containers of ${image}${title}`,
    slowUnless(image === WORKBENCH_IMAGE),
    () => {
      it("mirror() carries a tree there and back, with odd names, and no more than what changed", async () => {
        const [host, stateDir] = [folder(), folder()];
        mkdirSync(join(host, "d/empty"), { recursive: true });
        writeFileSync(join(host, "d/f"), "1");
        symlinkSync("../d/f", join(host, "d/l"));
        writeFileSync(join(host, "large"), Buffer.alloc(9_000_000, "large"));
        for (const name of ODD_NAMES) {
          writeFileSync(Buffer.concat([Buffer.from(`${host}/`), Buffer.from(name, "latin1")]), `odd ${name}`);
        }
        await using environment = createDockerEnvironment({ image, stateDir });
        const sync = () => mirror(host, environment, { direction: "both", stateDir });
        const first = await sync();
        expect(first).toMatchObject({ pulled: [], conflicts: [], skipped: [] });
        expect(first.pushed).toHaveLength(5 + ODD_NAMES.length);
        const names = readdirSync(host, { encoding: "latin1" }).sort();
        rmSync(join(host, "d/f"));
        await environment.exec(
          "echo more >> large; chmod 755 d/empty; ln -s nowhere d/m; echo n > 'new file'",
        );
        expect(await sync()).toEqual({
          pushed: ["d/f"],
          pulled: ["d/m", "large", "new file"],
          conflicts: [],
          skipped: [],
        });
        expect(readdirSync(host, { encoding: "latin1" }).sort()).toEqual([...names, "new file"].sort());
        expect(readFileSync(join(host, "large")).subarray(-5).toString()).toBe("more\n");
        expect(readlinkSync(join(host, "d/m"))).toBe("nowhere");
        expect(await sync()).toEqual({ pushed: [], pulled: [], conflicts: [], skipped: [] });
      });

      it("checkpoints of a removed container restore into a new one", async () => {
        const stateDir = folder();
        const run = async <Value>(
          use: (moorage: Awaited<ReturnType<typeof createMoorage>>) => Promise<Value>,
        ) => {
          await using moorage = await createMoorage({ environments: `docker:${image}`, stateDir });
          return await use(moorage);
        };
        const call = async (moorage: Awaited<ReturnType<typeof createMoorage>>, command: string) => {
          const result = await moorage.call({ name: "terminal", arguments: { command } });
          if (!result.ok) throw new Error(JSON.stringify(result.error));
          return result.content;
        };
        const id = await run(async (moorage) => {
          await call(
            moorage,
            "mkdir -p a/b; echo one > a/f; chmod 640 a/f; ln -s f a/l; printf 'x' > 'new\nline'",
          );
          const { checkpoint } = await call(moorage, "rm -r a; echo later > later");
          const report = await moorage.checkpoints.restore(String(checkpoint), moorage.environment());
          expect(report.failed).toEqual([]);
          expect((await call(moorage, "cat a/f a/l; stat -c %a a/f; cat new*")).output).toBe(
            "one\none\n640\nx",
          );
          return String(checkpoint);
        });
        await run(async (moorage) => {
          await expect(moorage.checkpoints.restore(id, moorage.environment())).rejects.toMatchObject({
            code: "INVALID_ARGUMENTS",
          });
          const report = await moorage.checkpoints.restore(id, moorage.environment(), { otherPlace: true });
          expect(report.failed).toEqual([]);
          expect((await call(moorage, "cat a/f a/l; stat -c %a a/f; ls -d a/b")).output).toBe(
            "one\none\n640\na/b\n",
          );
        });
      });

      it("a container's files outside of a shared folder are restored in it alone, not on the host", async () => {
        const [stateDir, workspace, around] = [folder(), folder(), folder()];
        const victim = join(around, "victim");
        await using inside = await createMoorage({ environments: `docker:${image}`, workspace, stateDir });
        const wrote = await inside.call({
          name: "write_file",
          arguments: { path: victim, content: "theirs" },
        });
        if (!wrote.ok) throw new Error(JSON.stringify(wrote.error));
        const id = String(wrote.content.checkpoint);
        writeFileSync(victim, "mine");
        await using here = await createMoorage({ environments: "local", workspace, stateDir });
        const report = await here.checkpoints.restore(id, here.environment(), { removeOthers: true });
        expect(report).toMatchObject({ restored: [], removed: [], failed: [] });
        expect(report.left.map(({ path }) => path)).toContain(victim);
        expect(readFileSync(victim, "utf8")).toBe("mine");
        const own = await inside.checkpoints.restore(id, inside.environment());
        expect(own.removed).toContain(victim);
      });
    },
  );
}
