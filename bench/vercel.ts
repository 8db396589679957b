/** A command in a remote sandbox, against the official client's own. Both ask the same server in another process. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Sandbox } from "@vercel/sandbox";
import { createVercelEnvironment } from "../environments/vercel/index.ts";
import { expectEqual, temporaryFolder } from "./environments.ts";
import { type Figure, type Measured, paired } from "./measure.ts";

const CREDENTIALS = { token: "bench", teamId: "bench", projectId: "bench" } as const;
/** The median of 60 moves by a tenth from one time to the next. */
const RUNS = 240;

export const figures: readonly Figure[] = [
  { name: "vercel-exec-vs-sdk", goal: 1.2, unit: "ms", measure: execVersusSdk },
];

interface Server extends AsyncDisposable {
  readonly address: string;
}

/** `moor serve` over this machine. */
async function serve(stateDir: string): Promise<Server> {
  const program = join(import.meta.dirname, "..", "bin", "moor.mjs");
  const child = spawn(process.execPath, [program, "serve", "-e", "local", "--port", "0", "--json"], {
    env: { ...process.env, MOORAGE_HOME: stateDir, MOORAGE_SERVE_TOKEN: CREDENTIALS.token },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(child, "close");
  const [line] = await once(createInterface(child.stdout), "line");
  const { address } = JSON.parse(String(line)) as { address: string }; // as `moor serve --json` prints it
  return {
    address,
    [Symbol.asyncDispose]: async () => {
      child.kill("SIGTERM");
      await ended;
    },
  };
}

async function execVersusSdk(): Promise<Measured> {
  process.env.VERCEL_TELEMETRY_DISABLED = "1";
  await using folder = await temporaryFolder();
  await using server = await serve(join(folder.path, "served"));
  const baseUrl = `${server.address}/api`;
  const bare = await Sandbox.create({
    ...CREDENTIALS,
    name: "bare",
    fetch: (input, init) => fetch(String(input).replace("https://vercel.com/api", baseUrl), init),
  });
  await using environment = createVercelEnvironment({
    baseUrl,
    credentials: CREDENTIALS,
    stateDir: join(folder.path, "state"),
  });
  await environment.start();
  return await paired(
    { run: async () => expectEqual((await environment.exec("echo hi")).output, "hi\n") },
    {
      run: async () => {
        const result = await bare.runCommand("echo", ["hi"]);
        expectEqual(await result.stdout(), "hi\n");
        expectEqual(result.exitCode, 0);
      },
    },
    RUNS,
  );
}
