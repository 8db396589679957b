/** Small means that the tests of streams share. */
import type { DockerClient } from "../../../environments/docker/client.ts";
import type { ExecTarget } from "../../../environments/docker/stream.ts";
import { ContainerWatch } from "../../../environments/docker/watch.ts";
import type { ShellBackend } from "../../../environments/shell/backend.ts";
import type { ShellStream, StreamEnd } from "../../../environments/shell/stream.ts";
import { CONTAINER_ID } from "./fake-daemon.ts";

export interface Ran extends StreamEnd {
  readonly stdout: string;
  readonly stderr: string;
}

/** Reads a stream to the end of its program. */
export async function finish(stream: ShellStream, stdin = ""): Promise<Ran> {
  const out: Buffer[] = [];
  const err: Buffer[] = [];
  stream.stdout.on("data", (chunk: Buffer) => out.push(chunk));
  stream.stderr.on("data", (chunk: Buffer) => err.push(chunk));
  stream.stdin.end(stdin);
  const end = await stream.ended;
  await stream.close();
  const text = (chunks: Buffer[]) => Buffer.concat(chunks).toString("latin1");
  return { ...end, stdout: text(out), stderr: text(err) };
}

/** Runs a program of a backend to its end. */
export async function run(
  backend: ShellBackend,
  argv: readonly string[],
  stdin = "",
  env: Readonly<Record<string, string>> = {},
): Promise<Ran> {
  return await finish(await backend.openStream({ argv, env }), stdin);
}

export async function fakeTarget(client: DockerClient): Promise<ExecTarget & AsyncDisposable> {
  const watch = new ContainerWatch(client, CONTAINER_ID);
  await watch.open();
  return {
    client,
    containerId: CONTAINER_ID,
    name: "fake",
    watch,
    async [Symbol.asyncDispose]() {
      watch.close();
    },
  };
}

/** Waits until `claim` holds. @throws when it does not within `withinMs` */
export async function until(claim: () => boolean | Promise<boolean>, withinMs = 5_000): Promise<void> {
  const deadline = performance.now() + withinMs;
  while (!(await claim())) {
    if (performance.now() > deadline) throw new Error(`Not within ${withinMs} ms: ${claim}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
