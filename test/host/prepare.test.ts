import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "moorage-prepare-"));
});
afterAll(() => rm(folder, { recursive: true }));

interface Run {
  readonly exitCode: number | string | null | undefined;
  readonly stdout: string;
  readonly stderr: string;
}

function prepare(env: Record<string, string>, ...argv: string[]): Promise<Run> {
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      [join(import.meta.dirname, "prepare.ts"), ...argv],
      { env: { ...process.env, MOORAGE_REQUIRE: "", ...env } },
      (error, stdout, stderr) => resolve({ exitCode: error ? error.code : 0, stdout, stderr }),
    );
  });
}

it("prepare says which backend is not tested, and why, and passes when none is required", async () => {
  const run = await prepare({ DOCKER_HOST: `unix://${folder}/none.sock` }, "--check");
  expect(run.exitCode).toBe(0);
  expect(run.stdout).toMatch(/^host: local: ready$/m);
  expect(run.stdout).toMatch(
    /^host: docker: not tested: the engine at unix:\S+none\.sock \(from DOCKER_HOST\) does not answer: .*ENOENT/m,
  );
});

it("prepare fails when a required backend cannot be tested", async () => {
  const run = await prepare(
    { DOCKER_HOST: `unix://${folder}/none.sock`, MOORAGE_REQUIRE: "local,docker" },
    "--check",
  );
  expect(run.exitCode).toBe(1);
  expect(run.stderr).toMatch(
    /^host: required, but not tested: docker: the engine at unix:\S+ \(from DOCKER_HOST\)/m,
  );
});

it("prepare looks for the engine where the docker command would: in the chosen context", async () => {
  const meta = join(folder, "contexts/meta", createHash("sha256").update("team").digest("hex"));
  await mkdir(meta, { recursive: true });
  const endpoint = { Host: `unix://${folder}/team.sock` };
  await writeFile(join(meta, "meta.json"), JSON.stringify({ Name: "team", Endpoints: { docker: endpoint } }));
  await writeFile(join(folder, "config.json"), JSON.stringify({ currentContext: "team" }));
  const run = await prepare({ DOCKER_HOST: "", DOCKER_CONTEXT: "", DOCKER_CONFIG: folder }, "--check");
  expect(run.stdout).toMatch(/docker: not tested: the engine at unix:\S+team\.sock \(from context "team"/);
});

it("prepare does not wait for an engine that accepts and never answers", { tags: ["slow"] }, async () => {
  const path = join(folder, "silent.sock");
  const server = createServer().listen(path);
  try {
    const run = await prepare({ DOCKER_HOST: `unix://${path}` }, "--check");
    expect(run.stdout).toMatch(/docker: not tested: .* does not answer/);
  } finally {
    server.close();
  }
});

it("prepare names the missing programs when it may only look, and fails for a backend that needs them", async () => {
  const run = await prepare(
    { PATH: folder, DOCKER_HOST: `unix://${folder}/none.sock`, MOORAGE_REQUIRE: "ssh" },
    "--check",
  );
  expect(run.exitCode).toBe(1);
  expect(run.stdout).toMatch(/^host: missing: bash, .*\brg\b.* \(not installed: only looking\)$/m);
  expect(run.stdout).toMatch(/^host: local: not tested: bash and ps missing$/m);
  expect(run.stderr).toMatch(/^host: required, but not tested: ssh: .*(?:ssh and .* missing|needs root)$/m);
  expect(run.stdout).toMatch(/^host: vercel: not tested: bash and ps missing$/m);
});

it("prepare refuses arguments and backends that it does not know", async () => {
  expect(await prepare({}, "--chekc")).toEqual({
    exitCode: 2,
    stdout: "",
    stderr: "host: unknown argument --chekc; there is --check\n",
  });
  expect(await prepare({ MOORAGE_REQUIRE: "local,dokcer" })).toEqual({
    exitCode: 2,
    stdout: "",
    stderr:
      'host: Cannot require backend "dokcer" in MOORAGE_REQUIRE: there are local, docker, ssh, vercel\n',
  });
});
