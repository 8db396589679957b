/** Sessions in a bubblewrap sandbox against plain local ones, and bytes through the door and the proxy. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { bwrapArguments } from "../environments/local/bubblewrap/arguments.ts";
import { createBubblewrapEnvironment } from "../environments/local/bubblewrap/index.ts";
import { layoutArgv } from "../environments/local/bubblewrap/layout.ts";
import { probeBubblewrap } from "../environments/local/bubblewrap/probe.ts";
import { protect } from "../environments/local/bubblewrap/protected.ts";
import { seccompFilter } from "../environments/local/bubblewrap/seccomp.ts";
import { expectEqual, localEnvironment, run, temporaryFolder } from "./environments.ts";
import { type Figure, type Measured, paired } from "./measure.ts";

const TRANSFER_BYTES = 100 * 1024 * 1024;

/** In a process of its own, so that neither side of the comparison shares a thread with it. Says its port. */
const SERVER = `
const [key, cert, size] = process.argv.slice(1), fs = require("node:fs");
const chunk = Buffer.alloc(1024 * 1024, "x");
const server = require("node:https").createServer({ key: fs.readFileSync(key), cert: fs.readFileSync(cert) }, async (_, response) => {
  response.writeHead(200, { "Content-Length": size });
  for (let sent = 0; sent < Number(size); sent += chunk.length)
    if (!response.write(chunk)) await new Promise((resolve) => response.once("drain", resolve));
  response.end();
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
`;

export const figures: readonly Figure[] = [
  { name: "bubblewrap-echo-vs-local", goal: 1.3, unit: "ms", obstacle, measure: echo },
  { name: "bubblewrap-session-vs-bwrap", goal: 1.5, unit: "ms", obstacle, measure: session },
  { name: "bubblewrap-start-vs-bwrap", goal: 1.5, unit: "ms", obstacle, measure: start },
  { name: "egress-https-100mib-vs-direct", goal: 1.3, unit: "ms", obstacle, measure: transfer },
];

async function obstacle(): Promise<string | null> {
  const health = await probeBubblewrap();
  return health.healthy ? null : health.reason;
}

function sandbox(folder: string, port?: number) {
  return createBubblewrapEnvironment({
    stateDir: join(folder, "state"),
    workspace: folder,
    egress: port === undefined ? "none" : { allow: [`127.0.0.1:${port}`] },
  });
}

async function echo(): Promise<Measured> {
  await using folder = await temporaryFolder();
  await using ours = sandbox(folder.path);
  await using plain = localEnvironment(folder.path);
  await using inside = await ours.openSession();
  await using outside = await plain.openSession();
  return await paired(
    { run: async () => expectEqual((await inside.exec("echo hi")).output, "hi\n") },
    { run: async () => expectEqual((await outside.exec("echo hi")).output, "hi\n") },
    60,
  );
}

/** A session in a sandbox that is there, with its first command, against a bwrap that is made like it for one command. */
async function session(): Promise<Measured> {
  await using folder = await temporaryFolder();
  await using other = await temporaryFolder();
  await using environment = sandbox(folder.path);
  await environment.start();
  return await paired(
    {
      run: async () => {
        await using opened = await environment.openSession();
        expectEqual((await opened.exec("true")).exitCode, 0);
      },
    },
    { run: await sameSandbox(other.path) },
    30,
  );
}

/**
 * The same where the sandbox has to be made for the session, by a process that had one before: the process of the next one
 * is forked while a sandbox ends, outside of both sides' time.
 */
async function start(): Promise<Measured> {
  await using folder = await temporaryFolder();
  await using other = await temporaryFolder();
  let environment: ReturnType<typeof sandbox> | null = null;
  const bare = await sameSandbox(other.path);
  return await paired(
    {
      run: async () => {
        environment = sandbox(folder.path);
        const session = await environment.openSession();
        expectEqual((await session.exec("true")).exitCode, 0);
      },
      after: async () => {
        await environment?.stop();
      },
    },
    { run: bare },
    60,
  );
}

/** Runs `bash -c true` in a sandbox that is made like ours. */
async function sameSandbox(workspace: string): Promise<() => Promise<void>> {
  const channel = join(workspace, "channel");
  const stateDir = join(workspace, "state");
  for (const path of [channel, stateDir]) await mkdir(path);
  const filter = join(workspace, "filter");
  await writeFile(filter, seccompFilter() ?? "");
  const protection = protect(workspace, new Set());
  protection.make();
  const parts = { workspace, channel, hidden: [stateDir], openNetwork: false, foreign: false };
  const layout = [...layoutArgv(parts), ...protection.argv];
  const argv = bwrapArguments({ layout, workspace, network: "none" });
  return async () => {
    const descriptor = openSync(filter, "r");
    const child = spawn("bwrap", [...argv, "--", "bash", "-c", "true"], {
      stdio: ["ignore", "pipe", "inherit", "ignore", descriptor, "pipe"],
    });
    closeSync(descriptor);
    const [code] = await once(child, "exit");
    expectEqual(code, 0);
  };
}

/** The same curl to the same server, from the sandbox through door and proxy, and from this machine. */
async function transfer(): Promise<Measured> {
  await using folder = await temporaryFolder();
  const [key, cert] = [join(folder.path, "key"), join(folder.path, "cert")];
  const subject = ["-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1"];
  const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
  await run(
    "openssl",
    "req",
    "-x509",
    "-nodes",
    "-days",
    "1",
    ...curve,
    ...subject,
    "-keyout",
    key,
    "-out",
    cert,
  );
  const server = spawn(process.execPath, ["-e", SERVER, key, cert, String(TRANSFER_BYTES)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [told] = await once(server.stdout, "data");
  const port = Number(String(told));
  const argv = [
    "-sS",
    "--cacert",
    cert,
    "-o",
    "/dev/null",
    "-w",
    "%{size_download}",
    `https://127.0.0.1:${port}/`,
  ];
  try {
    await using environment = sandbox(folder.path, port);
    await using session = await environment.openSession();
    const ours = ["curl", "--noproxy", "''", ...argv.map((word) => `'${word}'`)].join(" ");
    return await paired(
      { run: async () => expectEqual((await session.exec(ours)).output, String(TRANSFER_BYTES)) },
      { run: async () => expectEqual(await run("curl", "--noproxy", "*", ...argv), String(TRANSFER_BYTES)) },
      7,
      1,
    );
  } finally {
    server.kill();
  }
}
