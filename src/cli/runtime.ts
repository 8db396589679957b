/** A command's runtime: made of the common options, ended with the command, its slow steps shown. */
import { parseEnvironmentWords } from "../environment-names.ts";
import { createMoorage, type Moorage } from "../moorage.ts";
import { EXIT } from "./exit.ts";
import { badUsage, printFailure } from "./failure.ts";
import { type Lifetime, watchLifetime } from "./lifetime.ts";
import { printLine } from "./output.ts";
import type { ToolOptions } from "./program.ts";
import { createProgressView } from "./progress-view.ts";

export interface Running {
  readonly moorage: Moorage;
  readonly lifetime: Lifetime;
}

/**
 * Runs `work` with a runtime and ends that runtime afterwards, whatever came of it. The exit status is a signal's
 * when one ended us, else what `work` says.
 */
export async function withMoorage(
  options: ToolOptions,
  work: (running: Running) => Promise<number>,
): Promise<number> {
  using lifetime = watchLifetime();
  using view = createProgressView(process.stderr);
  const moorage = await createMoorage({
    environments: parseEnvironmentWords(options.environment ?? []),
    ...(options.workspace === undefined ? {} : { workspace: options.workspace }),
    ...(options.config === undefined ? {} : { config: options.config }),
    ...(options.toolsets === undefined ? {} : { toolsets: options.toolsets }),
    onEvent: (event) => {
      if (event.type === "environment-progress") view.show(event);
      else if (event.type === "availability-lost")
        printLine(`moor: ${event.subject} is lost: ${event.reason}`);
      else if (event.type === "availability-restored") printLine(`moor: ${event.subject} works again`);
      else if (event.type === "tool-module-failed") {
        printLine(`moor: Cannot load tools of "${event.path}": ${event.error.message}`);
      }
    },
  });
  let exitCode: number;
  try {
    exitCode = await work({ moorage, lifetime });
  } catch (error) {
    await stop(moorage);
    // What a signal of ours brought about is no failure to tell.
    if (lifetime.exitCode !== null) return lifetime.exitCode;
    throw error;
  }
  const clean = await stop(moorage);
  return lifetime.exitCode ?? (exitCode === EXIT.ok && !clean ? EXIT.failed : exitCode);
}

/** Ends the runtime; what could not be removed is told, and does not hide the command's own outcome. */
async function stop(moorage: Moorage): Promise<boolean> {
  try {
    await moorage.stop();
    return true;
  } catch (error) {
    printFailure(error);
    return false;
  }
}

/** The one environment of a command that takes no more. @throws {MoorageError} INVALID_ARGUMENTS */
export function onlyOne(options: ToolOptions): ToolOptions {
  if ((options.environment?.length ?? 0) > 1) {
    throw badUsage("Several environments are named, and this command takes one", "Give `-e` once.");
  }
  return options;
}
