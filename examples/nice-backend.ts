/** A backend of one's own: this machine, with every command at a lower priority. */
import { spawn } from "node:child_process";
import type { BaseEnvironment } from "../environments/base.ts";
import type { ShellBackend } from "../environments/shell/backend.ts";
import { createShellEnvironment, type ShellEnvironmentOptions } from "../environments/shell/environment.ts";
import type { ShellStream, StreamEnd, StreamRequest } from "../environments/shell/stream.ts";
import { MoorageError } from "../src/errors.ts";

export interface NiceOptions extends ShellEnvironmentOptions {
  readonly workspace: string;
  /** Added to the niceness of commands, 0 to 19. @default {10} */
  readonly niceness?: number;
}

export function createNiceEnvironment(options: NiceOptions): BaseEnvironment {
  const { niceness = 10, ...common } = options;
  return createShellEnvironment(niceBackend(options.workspace, niceness), common);
}

function niceBackend(workspace: string, niceness: number): ShellBackend {
  return {
    name: "nice",
    isolation: "none",
    capabilities: new Set(["ports"]),
    description: `this machine at niceness ${niceness}`,
    workspace,
    exposedHostPaths: ["/"],
    // A place that must be made first is made here, and taken away by `stop`.
    start: async () => {},
    stop: async () => {},
    openStream: async (request) =>
      open(["nice", "-n", String(niceness), ...request.argv], request, workspace),
    health: async () => ({ healthy: true }),
    // Nothing to bring back: this machine does not get lost.
    recover: async () => null,
  };
}

async function open(argv: readonly string[], { env }: StreamRequest, cwd: string): Promise<ShellStream> {
  const [file = "", ...args] = argv;
  // A group of its own, so that signals for it reach nobody else. Of the host's variables only PATH goes in.
  const child = spawn(file, args, { cwd, env: { PATH: process.env.PATH ?? "", ...env }, detached: true });
  child.stdin.on("error", () => {}); // A program that ended closes its input; `ended` tells how.
  const ended = new Promise<StreamEnd>((resolve) => {
    child.once("exit", (exitCode, signal) => resolve({ exitCode, signal, lost: null }));
    child.once("error", (cause) => {
      const lost = new MoorageError("ENVIRONMENT_UNAVAILABLE", `Cannot start ${file}: ${cause.message}`, {
        cause,
      });
      resolve({ exitCode: null, signal: null, lost });
    });
  });
  const close = async () => {
    child.stdin.destroy();
    child.kill("SIGKILL");
    await ended;
    child.stdout.destroy();
    child.stderr.destroy();
  };
  return { stdin: child.stdin, stdout: child.stdout, stderr: child.stderr, ended, close };
}
