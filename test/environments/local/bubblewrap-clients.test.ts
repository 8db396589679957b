/** The programs that people use reach what is allowed through the door: curl, git, pip, npm and Node's fetch. */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { copyFile, mkdir, mkdtemp, readFile, realpath, rm, writeFile } from "node:fs/promises";
import { createServer as createHttpServer } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import type { Server } from "node:net";
import { tmpdir } from "node:os";
import { join, normalize } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { BaseEnvironment } from "../../../environments/base.ts";
import { createBubblewrapEnvironment } from "../../../environments/local/bubblewrap/index.ts";
import { probeBubblewrap } from "../../../environments/local/bubblewrap/probe.ts";
import { certificate, portOf } from "../egress/network.ts";

const run = promisify(execFile);
const health = await probeBubblewrap();
const root = await realpath(await mkdtemp(join(tmpdir(), "moorage-clients-")));
const site = join(root, "site");
let web: Server;
let secure: Server;
let environment: BaseEnvironment;

/** Our own addresses are not sent to a proxy unless a program is told to. */
const PROXIED = "export NO_PROXY= no_proxy= PIP_DISABLE_PIP_VERSION_CHECK=1 HOME=/tmp/home; mkdir -p $HOME; ";
const inside = async (command: string) => {
  const { exitCode, output } = await environment.exec(PROXIED + command, { timeoutMs: 60_000 });
  return { exitCode, output: output.trim() };
};

async function listen<Made extends Server>(server: Made): Promise<Made> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return server;
}

/** A repository for git's plain transport, a package for pip and one for npm, all of them files. */
async function makeSite(): Promise<void> {
  const work = join(root, "work");
  await mkdir(join(site, "simple", "mooragetest"), { recursive: true });
  await mkdir(join(work, "package"), { recursive: true });
  await run("git", ["init", "-q", "-b", "main", work]);
  await writeFile(join(work, "file"), "from git\n");
  await run("git", ["-C", work, "add", "file"]);
  const author = ["-c", "user.name=a", "-c", "user.email=a@a.test"];
  await run("git", ["-C", work, ...author, "commit", "-qm", "one"]);
  await run("git", ["clone", "-q", "--bare", work, join(site, "repository.git")]);
  await run("git", ["-C", join(site, "repository.git"), "update-server-info"]);
  const wheel = "mooragetest-1.0-py3-none-any.whl";
  const script = `
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as archive:
    archive.writestr("mooragetest.py", "print('from pip')\\n")
    archive.writestr("mooragetest-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: mooragetest\\nVersion: 1.0\\n")
    archive.writestr("mooragetest-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    archive.writestr("mooragetest-1.0.dist-info/RECORD", "mooragetest.py,,\\nmooragetest-1.0.dist-info/METADATA,,\\nmooragetest-1.0.dist-info/WHEEL,,\\nmooragetest-1.0.dist-info/RECORD,,\\n")
`;
  await run("/usr/bin/python3", ["-c", script, join(site, "simple", "mooragetest", wheel)]);
  await writeFile(join(site, "simple", "mooragetest", "index.html"), `<a href="${wheel}">${wheel}</a>`);
  await writeFile(
    join(work, "package", "package.json"),
    JSON.stringify({ name: "mooragetest", version: "1.0.0" }),
  );
  await writeFile(join(work, "package", "index.js"), "console.log('from npm')\n");
  await run("tar", ["-czf", join(site, "mooragetest.tgz"), "-C", work, "package"]);
}

describe.skipIf(!health.healthy)(
  `programs behind an allow-list${health.healthy ? "" : ` (not tested: ${health.reason})`}`,
  () => {
    beforeAll(async () => {
      await makeSite();
      web = await listen(
        createHttpServer(async (request, response) => {
          const path = normalize(decodeURIComponent((request.url ?? "/").split("?")[0] ?? "/"));
          if (path === "/mooragetest") {
            const tarball = `http://127.0.0.1:${portOf(web)}/mooragetest.tgz`;
            const version = { name: "mooragetest", version: "1.0.0", dist: { tarball } };
            return void response.end(
              JSON.stringify({
                name: "mooragetest",
                "dist-tags": { latest: "1.0.0" },
                versions: { "1.0.0": version },
              }),
            );
          }
          const file = join(site, path.endsWith("/") ? `${path}index.html` : path);
          const content = await readFile(file).catch(() => null);
          response.writeHead(content ? 200 : 404, path.endsWith("/") ? { "Content-Type": "text/html" } : {});
          return void response.end(content ?? "");
        }),
      );
      const { key, cert } = await certificate("127.0.0.1");
      secure = await listen(createHttpsServer({ key, cert }, (_, response) => response.end("over TLS")));
      const workspace = join(root, "workspace");
      await mkdir(workspace);
      await writeFile(join(workspace, "cert"), cert);
      environment = createBubblewrapEnvironment({
        workspace,
        stateDir: join(root, "state"),
        egress: { allow: [`127.0.0.1:${portOf(web)}`, `127.0.0.1:${portOf(secure)}`] },
      });
    }, 60_000);
    afterAll(async () => {
      await environment?.stop();
      web?.close();
      secure?.close();
      await rm(root, { recursive: true, force: true });
    }, 60_000);

    it("EG-03: curl, over HTTP and TLS", async () => {
      expect(await inside(`curl -sS http://127.0.0.1:${portOf(web)}/simple/mooragetest/`)).toMatchObject({
        exitCode: 0,
      });
      expect(await inside(`curl -sS --cacert cert https://127.0.0.1:${portOf(secure)}/`)).toEqual({
        exitCode: 0,
        output: "over TLS",
      });
    });

    it("EG-03: git", async () => {
      const command = `git clone -q http://127.0.0.1:${portOf(web)}/repository.git /tmp/cloned && cat /tmp/cloned/file`;
      expect(await inside(command)).toEqual({ exitCode: 0, output: "from git" });
    });

    it.skipIf(!existsSync("/usr/bin/pip3"))("EG-03: pip", { timeout: 90_000 }, async () => {
      const index = `http://127.0.0.1:${portOf(web)}/simple/`;
      const command = `/usr/bin/pip3 install -q --target /tmp/packages --index-url ${index} mooragetest && PYTHONPATH=/tmp/packages /usr/bin/python3 -m mooragetest`;
      const { exitCode, output } = await inside(command);
      expect([exitCode, output]).toEqual([0, expect.stringMatching(/from pip$/)]);
    });

    it.skipIf(!existsSync("/usr/bin/npm"))("EG-03: npm", { timeout: 90_000 }, async () => {
      const registry = `http://127.0.0.1:${portOf(web)}/`;
      const command = `mkdir -p /tmp/app && cd /tmp/app && echo '{}' >package.json && /usr/bin/npm install --no-audit --no-fund --loglevel=error --registry ${registry} mooragetest >/dev/null && node -e 'require("mooragetest")'`;
      const { exitCode, output } = await inside(command);
      expect([exitCode, output]).toEqual([0, expect.stringMatching(/from npm$/)]);
    });

    it("EG-03: Node's fetch, over HTTP and TLS", async () => {
      const urls = [
        `http://127.0.0.1:${portOf(web)}/simple/mooragetest/`,
        `https://127.0.0.1:${portOf(secure)}/`,
      ];
      const script = `Promise.all(${JSON.stringify(urls)}.map((url) => fetch(url))).then((all) => console.log(all.map((r) => r.status)))`;
      // A copy in the workspace, since ours may lie where the sandbox has a folder of its own.
      await copyFile(process.execPath, join(environment.workspace, "node-of-ours"));
      const command = `NODE_EXTRA_CA_CERTS=$PWD/cert ./node-of-ours -e '${script}'`;
      expect(await inside(command)).toEqual({ exitCode: 0, output: "[ 200, 200 ]" });
    });
  },
);
