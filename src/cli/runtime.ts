/** A command's runtime: made of the common options, ended with the command, its slow steps shown. */
import { type Config, configPath, readConfig } from "../config.ts";
import { parseEnvironmentWords } from "../environment-names.ts";
import { isMoorageError, MoorageError } from "../errors.ts";
import type { EventListener, MoorageEvent } from "../events.ts";
import { createMoorage, type Moorage } from "../moorage.ts";
import { ToolRegistry } from "../registry.ts";
import { EXIT } from "./exit.ts";
import { badUsage, printFailure } from "./failure.ts";
import { type Lifetime, watchLifetime } from "./lifetime.ts";
import type { ToolOptions } from "./options.ts";
import { printLine } from "./output.ts";
import { createProgressView, type ProgressView } from "./progress-view.ts";

export interface Running {
  readonly moorage: Moorage;
  readonly lifetime: Lifetime;
  /**
   * Brings an environment up, the first one without a name, its slow steps shown; nothing of them stands in the way
   * of output afterwards.
   */
  readonly start: (name?: string) => Promise<void>;
  readonly view: ProgressView;
}

export interface RuntimeOptions {
  /**
   * Whether tools are called. Finding them takes time, and what the configuration says of them concerns no other
   * work.
   * @default true
   */
  readonly hasTools?: boolean;
  /** Whether the folder of `--sync` is mirrored all along: for work that lasts. @default false */
  readonly watches?: boolean;
}

/**
 * Runs `work` with a runtime and ends that runtime afterwards, whatever came of it. The exit status is a signal's
 * when one ended us, else what `work` says.
 */
export async function withMoorage(
  options: ToolOptions,
  work: (running: Running) => Promise<number>,
  { hasTools = true, watches = false }: RuntimeOptions = {},
): Promise<number> {
  using lifetime = watchLifetime();
  using view = createProgressView(process.stderr);
  // A start that fails is told by whoever asked for it; that its tools are lost with it is no second news.
  let starting = 0;
  const onEvent = (event: MoorageEvent): void => {
    if (starting === 0 || event.type !== "availability-lost") tell(event, view);
  };
  const moorage = await create(options, hasTools, onEvent);
  let exitCode: number;
  try {
    const start = (name?: string): Promise<void> => {
      starting += 1;
      return Promise.race([moorage.start(name), rejectOn(lifetime.abortSignal)]).finally(() => {
        starting -= 1;
        view.clear();
      });
    };
    exitCode = await withSync(options, { moorage, lifetime, start, view }, work, watches);
  } catch (error) {
    await stop(moorage);
    // What a signal of ours brought about is no failure to tell.
    if (lifetime.exitCode !== null) return lifetime.exitCode;
    throw error;
  }
  const clean = await stop(moorage);
  return lifetime.exitCode ?? (exitCode === EXIT.ok && !clean ? EXIT.failed : exitCode);
}

/**
 * Copies the folder of `--sync` in before the work, and changes both ways during it where it lasts, and after it: also
 * when the work failed or a signal ended it, since what was done is then worth as much.
 */
async function withSync(
  { sync, workspace }: ToolOptions,
  running: Running,
  work: (running: Running) => Promise<number>,
  watches: boolean,
): Promise<number> {
  if (sync === undefined) return work(running);
  if (workspace !== undefined) {
    throw badUsage("Both --workspace and --sync are given", "Use --sync where the folder cannot be mounted.");
  }
  const { requireFolder, syncAlong, syncAround } = await import("./mirror.ts");
  requireFolder(sync);
  const { moorage, start, view } = running;
  const [first, ...others] = moorage.environments;
  if (others.length > 0) {
    printLine(
      `moor: ${sync} is mirrored with the first environment alone, "${first}"; \`moor sync\` mirrors it with another`,
    );
  }
  await start();
  await syncAround(moorage, sync, "push", view);
  try {
    await using _watch = watches ? await syncAlong(moorage, sync) : null;
    return await work(running);
  } finally {
    await syncAround(moorage, sync, "both", view);
  }
}

/** A start may take minutes; a signal must not wait for it. Stopping the runtime ends it. */
function rejectOn(abortSignal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const abort = (): void => reject(new MoorageError("ABORTED", "The environment's start was cancelled"));
    if (abortSignal.aborted) abort();
    else abortSignal.addEventListener("abort", abort, { once: true });
  });
}

async function create(options: ToolOptions, hasTools: boolean, onEvent: EventListener): Promise<Moorage> {
  const { environment: words = [], config, workspace, toolsets } = options;
  const { path, isNamed } = configPath(config);
  try {
    const read = await readConfig(path, isNamed);
    return await createMoorage({
      environments: parseEnvironmentWords(words),
      config: hasTools ? read : withoutTools(read),
      ...(workspace === undefined ? {} : { workspace }),
      ...(toolsets === undefined ? {} : { toolsets }),
      ...(hasTools ? {} : { registry: new ToolRegistry() }),
      onEvent,
    });
  } catch (error) {
    if (words.length > 0 || !isMoorageError(error, "INVALID_SPEC")) throw error;
    throw new MoorageError("INVALID_SPEC", error.message, {
      cause: error,
      suggestion:
        "Say where to run: `-e local` on this machine, `-e docker:IMAGE` in a container of its own.",
    });
  }
}

function withoutTools(config: Config): Config {
  const {
    toolsets: _on,
    disabledToolsets: _off,
    toolsetIncludes: _made,
    toolFolders: _own,
    ...rest
  } = config;
  return rest;
}

/** What people should see of what happens beside their command. */
function tell(event: MoorageEvent, view: ProgressView): void {
  switch (event.type) {
    case "environment-progress":
      view.show(event);
      break;
    case "call-ended":
      view.clear();
      break;
    case "availability-lost":
      printLine(`moor: ${subjectOf(event)} is lost: ${event.reason}`);
      break;
    case "availability-restored":
      printLine(`moor: ${subjectOf(event)} works again`);
      break;
    case "probe-failed":
      printLine(`moor: The check of ${subjectOf(event)} failed: ${event.error.message}`);
      break;
    case "tool-module-failed":
      printLine(`moor: Cannot load tools of "${event.path}": ${event.error.message}`);
      break;
    default:
  }
}

/** `environment:web` as `environment "web"`. */
function subjectOf({ subject }: { readonly subject: string }): string {
  return subject.replace(/^(\w+):(.*)$/s, '$1 "$2"');
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
