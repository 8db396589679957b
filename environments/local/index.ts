/** This machine itself: the user's own shell, no isolation. */
import { access, constants, stat } from "node:fs/promises";
import { resolve } from "node:path";
import { MoorageError } from "../../src/errors.ts";
import type { BaseEnvironment, Capability, Health } from "../base.ts";
import type { ShellBackend } from "../shell/backend.ts";
import { createShellEnvironment, type ShellEnvironmentOptions } from "../shell/environment.ts";
import { knownPlaceholders } from "./bubblewrap/claims.ts";
import { removeRecord, writeRecord } from "./owners.ts";
import { reapLocal } from "./reap.ts";
import { spawnStream } from "./spawn.ts";
import { scrubbedVariables } from "./variables.ts";

export type LocalOptions = ShellEnvironmentOptions;

const CAPABILITIES: ReadonlySet<Capability> = new Set<Capability>(["pty", "ports", "reattach", "host-user"]);

async function checkFolder(path: string): Promise<MoorageError | null> {
  try {
    if ((await stat(path)).isDirectory()) {
      await access(path, constants.X_OK);
      return null;
    }
    return new MoorageError("WORKDIR_MISSING", `Cannot work in "${path}": it is no folder`);
  } catch (error) {
    const isClosed = error instanceof Error && "code" in error && error.code === "EACCES";
    const reason = isClosed ? "this user may not enter it" : "there is no such folder";
    return new MoorageError(
      isClosed ? "FILE_PERMISSION" : "WORKDIR_MISSING",
      `Cannot work in "${path}": ${reason}`,
      {
        cause: error,
      },
    );
  }
}

/** @throws {MoorageError} WORKDIR_MISSING when the folder in which we were started is gone */
export function currentFolder(): string {
  try {
    return process.cwd();
  } catch (error) {
    throw new MoorageError("WORKDIR_MISSING", "Cannot work in the current folder: it is gone", {
      cause: error,
    });
  }
}

/**
 * An environment on this machine. Commands see the host's variables without credentials; everything the user may
 * read or change, they may.
 *
 * @param options.workspace @default the current folder
 */
export function createLocalEnvironment(options: LocalOptions): BaseEnvironment {
  const workspace = options.workspace === undefined ? currentFolder() : resolve(options.workspace);
  let id = options.id ?? "";
  const backend: ShellBackend = {
    name: "local",
    isolation: "none",
    capabilities: CAPABILITIES,
    description: "this machine",
    workspace,
    exposedHostPaths: ["/"],
    start: async () => {
      const problem = await checkFolder(workspace);
      if (problem) throw problem;
      await reapLocal({ stateDir: options.stateDir, successorOf: id });
      await writeRecord(options.stateDir, {
        id,
        workspace,
        createdAt: new Date().toISOString(),
        keep: options.keep ?? false,
      });
    },
    stop: async ({ keep }) => {
      if (!keep) await removeRecord(options.stateDir, id);
    },
    openStream: ({ argv, env }) =>
      spawnStream({ argv, env: { ...scrubbedVariables(process.env), ...env }, cwd: workspace }),
    placeholders: () => knownPlaceholders(options.stateDir),
    health: async (): Promise<Health> => {
      const problem = await checkFolder(workspace);
      if (!problem) return { healthy: true };
      return { healthy: false, code: problem.code, reason: problem.message, suggestion: problem.suggestion };
    },
    // A machine that is lost takes its orchestrator with it.
    recover: async () => null,
  };
  const environment = createShellEnvironment(backend, { ...options, workspace });
  id = environment.id;
  return environment;
}
