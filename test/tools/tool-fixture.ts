/** A tool's surroundings in tests: the local environment on a fresh folder. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { z } from "zod";
import type { BaseEnvironment } from "../../environments/base.ts";
import { createLocalEnvironment } from "../../environments/local/index.ts";
import { isMoorageError, type MoorageError } from "../../src/errors.ts";
import type { Tool, ToolContext, ToolOutput } from "../../src/registry.ts";

export interface ToolFixture extends AsyncDisposable {
  readonly workspace: string;
  readonly environment: BaseEnvironment;
  call<Schema extends z.ZodObject>(tool: Tool<Schema>, args: z.input<Schema>): Promise<ToolOutput>;
  /** The error that a call ends in. */
  refused<Schema extends z.ZodObject>(tool: Tool<Schema>, args: z.input<Schema>): Promise<MoorageError>;
  write(path: string, content: string | Buffer): void;
  read(path: string): string;
  bytes(path: string): Buffer;
  /** Runs a line on this machine, in the workspace. */
  sh(line: string): string;
}

export interface FixtureOptions {
  readonly env?: Readonly<Record<string, string>>;
}

export async function createToolFixture(options: FixtureOptions = {}): Promise<ToolFixture> {
  const root = mkdtempSync(join(tmpdir(), "moorage-tools-"));
  const workspace = join(root, "w");
  mkdirSync(workspace);
  const environment = createLocalEnvironment({
    workspace,
    stateDir: join(root, "state"),
    ...(options.env && { env: options.env }),
  });
  await environment.start();
  const context: ToolContext = {
    callId: "call",
    environment,
    session: () => environment.openSession(),
    cwd: () => workspace,
    abortSignal: new AbortController().signal,
    yieldMs: undefined,
    progress: () => undefined,
  };
  const call: ToolFixture["call"] = (tool, args) => tool.handler(tool.parameters.parse(args), context);
  return {
    workspace,
    environment,
    call,
    refused: async (tool, args) => {
      try {
        await call(tool, args);
      } catch (error) {
        if (isMoorageError(error)) return error;
        throw error;
      }
      throw new TypeError(`${tool.name} was not refused`);
    },
    write: (path, content) => {
      mkdirSync(dirname(join(workspace, path)), { recursive: true });
      writeFileSync(join(workspace, path), content);
    },
    read: (path) => readFileSync(join(workspace, path), "utf8"),
    bytes: (path) => readFileSync(join(workspace, path)),
    sh: (line) => execFileSync("/bin/bash", ["-c", line], { cwd: workspace, encoding: "utf8" }),
    [Symbol.asyncDispose]: async () => {
      await environment.stop();
      rmSync(root, { recursive: true, force: true });
    },
  };
}
