/** Mirror and checkpoints in a remote sandbox: the same trees through an API that carries commands and text alone. */
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import type { BaseEnvironment } from "../../../environments/base.ts";
import { mirror } from "../../../environments/sync/mirror.ts";
import { Checkpoints } from "../../../src/checkpoints/checkpoints.ts";
import { environmentOf, type Served, serveLocal } from "../../serve/served.ts";

const base = mkdtempSync(join(tmpdir(), "moorage-mirror-vercel-"));
const stateDir = join(base, "state");
let served: Served;
let environment: BaseEnvironment;
beforeAll(async () => {
  served = await serveLocal();
  environment = environmentOf(served, { stateDir });
  await environment.start();
});
afterAll(async () => {
  await environment?.stop();
  await served?.[Symbol.asyncDispose]();
  rmSync(base, { recursive: true, force: true });
});

it("mirror() carries a tree into a sandbox and back, byte for byte", async () => {
  const host = join(base, "host");
  mkdirSync(join(host, "d/empty"), { recursive: true });
  const bytes = Buffer.from(Array.from({ length: 700_000 }, (_, at) => (at * 31) % 256));
  writeFileSync(join(host, "bytes"), bytes);
  writeFileSync(join(host, "d/tool"), "#!/bin/sh\necho ran\n");
  chmodSync(join(host, "d/tool"), 0o755);
  writeFileSync(join(host, "a name with ' and \n in it"), "odd");
  symlinkSync("d/tool", join(host, "link"));
  const sync = () => mirror(host, environment, { direction: "both", stateDir });
  expect((await sync()).pushed).toHaveLength(6);
  expect((await environment.exec("./link")).output).toBe("ran\n");
  await environment.exec(
    `printf '\\377\\000' >>bytes; rm d/tool; ln -sfn d link; chmod 700 d/empty; echo new >new`,
  );
  const second = await sync();
  expect(second).toMatchObject({ pushed: [], conflicts: [], skipped: [] });
  expect(readFileSync(join(host, "bytes"))).toEqual(Buffer.concat([bytes, Buffer.from([255, 0])]));
  expect(readlinkSync(join(host, "link"))).toBe("d");
  expect(readFileSync(join(host, "new"), "utf8")).toBe("new\n");
  expect(statSync(join(host, "d/tool"), { throwIfNoEntry: false })).toBeUndefined();
  expect(await sync()).toEqual({ pushed: [], pulled: [], conflicts: [], skipped: [] });
});

it("a checkpoint brings a sandbox's workspace back as it was", async () => {
  await using checkpoints = new Checkpoints(stateDir);
  await environment.exec("mkdir -p c/gone && printf '\\001\\377' >c/f && chmod 640 c/f && ln -s f c/l");
  const { id } = await checkpoints.create(environment);
  await environment.exec("rm -r c/gone c/l; echo changed >c/f; chmod 600 c/f; echo more >c/more");
  const report = await checkpoints.restore(id, environment);
  // Made by no call of a tool, it is told of and stays.
  expect(report).toMatchObject({ failed: [], others: ["c/more"], left: [] });
  const shown = await environment.exec(
    "cd c && ls -A && stat -c %a f && readlink l && od -An -tx1 f && test -d gone",
  );
  expect({ exitCode: shown.exitCode, output: shown.output }).toEqual({
    exitCode: 0,
    output: "f\ngone\nl\nmore\n640\nf\n 01 ff\n",
  });
});
