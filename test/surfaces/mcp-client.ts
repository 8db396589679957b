/** The official MCP client, connected to the real command over stdio. */
import { Client, type ClientOptions } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { afterAll, beforeAll, onTestFinished } from "vitest";
import { MOOR, privateHome, temporaryFolder } from "./moor.ts";

export interface Connection {
  readonly client: Client;
  readonly transport: StdioClientTransport;
  /** What the server wrote to stderr so far. */
  stderr(): string;
  readonly workspace: string;
}

export interface ConnectOptions {
  readonly words?: readonly string[];
  /** The whole line after `moor`, in place of `words` and the folder that they get. */
  readonly line?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly client?: ClientOptions;
}

/**
 * Starts `moor mcp`, on a fresh folder of this machine unless `words` say otherwise.
 *
 * @param onEnd when it ends; outside of a test, a hook's own
 */
export async function connect(
  options: ConnectOptions = {},
  onEnd: (end: () => void | Promise<void>) => void = onTestFinished,
): Promise<Connection> {
  const workspace = temporaryFolder(onEnd);
  const words = options.words ?? ["-e", "local"];
  const transport = new StdioClientTransport({
    command: MOOR,
    args: [...(options.line ?? ["mcp", ...words, "--workspace", workspace])],
    env: { ...inherited(), ...privateHome(onEnd), ...options.env },
    cwd: workspace,
    stderr: "pipe",
  });
  let stderr = "";
  transport.stderr?.on("data", (chunk: Buffer) => {
    stderr += chunk.toString("utf8");
  });
  const client = new Client({ name: "moorage-test", version: "1.0.0" }, options.client);
  await client.connect(transport);
  onEnd(() => client.close());
  return { client, transport, workspace, stderr: () => stderr };
}

/** Starts `moor mcp` once for the tests of a `describe` that leave one another alone. */
export function connectOnce(options: ConnectOptions = {}): () => Connection {
  const ends: (() => void | Promise<void>)[] = [];
  let connection: Connection;
  beforeAll(async () => {
    connection = await connect(options, (end) => ends.push(end));
  });
  afterAll(async () => {
    for (const end of ends.reverse()) await end();
  });
  return () => connection;
}

function inherited(): Record<string, string> {
  return Object.fromEntries(
    Object.entries(process.env).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])),
  );
}
