/** `moor checkpoints`: what can be undone, and undoing it. */
import { existsSync } from "node:fs";
import { realpath } from "node:fs/promises";
import { basename, dirname, isAbsolute, join, resolve } from "node:path";
import { styleText } from "node:util";
import { showName } from "../../environments/tree/names.ts";
import { Checkpoints } from "../checkpoints/checkpoints.ts";
import type { CheckpointInfo } from "../checkpoints/store.ts";
import { isMoorageError, MoorageError } from "../errors.ts";
import { stateDir } from "../paths.ts";
import { shellWord } from "../shell-word.ts";
import { EXIT } from "./exit.ts";
import { badUsage } from "./failure.ts";
import type { EnvironmentOptions, JsonOption } from "./options.ts";
import { printJson, printLine, printText, visible } from "./output.ts";
import { onlyOne, type Running, withMoorage } from "./runtime.ts";

export interface DiffOptions extends EnvironmentOptions {
  readonly otherPlace?: boolean;
}

export interface RestoreOptions extends DiffOptions {
  readonly dryRun?: boolean;
  readonly removeOthers?: boolean;
}

export interface ListOptions extends JsonOption {
  readonly workspace?: string;
}

/** All but what lines are made of. */
const CONTROLS = /[^\P{Cc}\t]/gu;
/** How the place of a folder of the host begins. */
const HOST = "host:";

/**
 * Lists those of every folder, or of one workspace: the folder itself, those in it and those that it is in, also where an
 * environment's workspace was mirrored with one.
 */
export async function listCheckpoints({ workspace, json }: ListOptions): Promise<number> {
  await using checkpoints = new Checkpoints(stateDir());
  const folder = workspace === undefined ? null : await realPlace(resolve(workspace));
  const known = await checkpoints.list();
  const all = known.filter((each) => folder === null || isAbout(each, folder));
  if (folder !== null && all.length === 0 && !existsSync(folder)) {
    throw badUsage(
      `There is no folder "${workspace}", and no checkpoint of one`,
      "Name a folder of this host.",
    );
  }
  if (json) printJson({ checkpoints: all });
  else {
    if (all.length === 0) {
      printLine(`moor: There are no checkpoints${folder === null ? "" : ` of ${folder}`}`);
      if (known.length > 0) {
        printLine(`moor: \`moor checkpoints list\` shows ${known.length} of other folders and environments`);
      }
    }
    for (const { id, createdAt, scope, reason, place, paths, skipped, origin } of all) {
      const notes = [`${paths} ${paths === 1 ? "path" : "paths"}`];
      if (skipped.length > 0) notes.push(`${skipped.length} left out`);
      if (!place.startsWith(HOST)) notes.push(...namesOf(origin));
      printText(
        `${id}  ${createdAt}  ${scope.padEnd(5)}  ${visible(reason)}  ${visible(place)}  (${notes.join(", ")})`,
      );
    }
  }
  return EXIT.ok;
}

/** What a person knows the place of a checkpoint by, as far as it was noted. */
function namesOf({ spec, mirrored }: CheckpointInfo["origin"]): readonly string[] {
  return [
    ...(spec === null ? [] : [`-e ${shellWord(spec)}`]),
    ...(mirrored === null ? [] : [`mirrored with ${visible(mirrored)}`]),
  ];
}

/** The folder without links; one that was deleted has checkpoints all the same. */
async function realPlace(folder: string): Promise<string> {
  try {
    return await realpath(folder);
  } catch (error) {
    const isGone = error instanceof Error && "code" in error && error.code === "ENOENT";
    if (isGone) return join(await realPlace(dirname(folder)), basename(folder));
    throw badUsage(
      `Cannot use folder "${folder}": ${error instanceof Error ? error.message : String(error)}`,
      "Name a folder of this host.",
    );
  }
}

function isAbout({ place, origin: { mirrored } }: CheckpointInfo, folder: string): boolean {
  const root = place.startsWith(HOST) ? place.slice(HOST.length) : mirrored;
  if (root === null) return false;
  return (
    root === folder || root.startsWith(`${folder}/`) || folder.startsWith(root === "/" ? "/" : `${root}/`)
  );
}

export async function showCheckpoint(id: string, { json }: JsonOption): Promise<number> {
  await using checkpoints = new Checkpoints(stateDir());
  const { info, states } = await checkpoints.show(id);
  if (json) {
    printJson({ ...info, states: states.map(([path, state]) => ({ path, ...state })) });
    return EXIT.ok;
  }
  const { createdAt, reason, scope, place, origin, skipped } = info;
  const names = namesOf(origin).join(", ");
  printText(`${id}  ${createdAt}  ${visible(reason)}`);
  printText(
    `${scope === "tree" ? "the whole of" : "files of"} ${visible(place)}, taken in ${visible(origin.description)}${names && ` (${names})`}`,
  );
  for (const [path, state] of states) {
    const mode = "mode" in state ? ` ${state.mode.toString(8).padStart(4, "0")}` : "";
    const target = state.kind === "symlink" ? ` -> ${showName(state.target)}` : "";
    printText(`  ${state.kind}${mode}  ${path}${target}`);
  }
  printSome(skipped, ({ path, reason: why }) => printText(`  left out  ${path}: ${why}`));
  return EXIT.ok;
}

export async function createCheckpoint(
  reason: string | undefined,
  options: EnvironmentOptions,
): Promise<number> {
  return withEnvironment(options, async ({ moorage }) => {
    const info = await moorage.checkpoints.create(moorage.environment(), reason);
    if (options.json) printJson(info);
    else printText(info.id);
    printSome(info.skipped, ({ path, reason: why }) => printLine(`moor: Left out: ${path}: ${why}`));
    return EXIT.ok;
  });
}

export async function diffCheckpoint(
  id: string,
  paths: readonly string[],
  options: DiffOptions,
): Promise<number> {
  return withIts(id, options, async ({ moorage }, stand) => {
    const { otherPlace = false } = options;
    const text = await moorage.checkpoints.diff(id, moorage.environment(), {
      otherPlace,
      ...(paths.length > 0 && { paths: pathsFrom(stand, paths) }),
    });
    if (options.json) printJson({ checkpoint: id, diff: text });
    else if (text !== "") printText(process.stdout.isTTY ? coloured(text) : text);
    return EXIT.ok;
  });
}

export async function restoreCheckpoint(
  id: string,
  paths: readonly string[],
  options: RestoreOptions,
): Promise<number> {
  return withIts(id, options, async ({ moorage }, stand) => {
    const { dryRun = false, removeOthers = false, otherPlace = false } = options;
    if (stand !== null && paths.length === 0) {
      const verb = dryRun ? "would be restored" : "is restored";
      printLine(`moor: All of ${visible(stand.root)} ${verb}, not ${visible(stand.inside)} alone`);
    }
    const report = await moorage.checkpoints.restore(id, moorage.environment(), {
      dryRun,
      removeOthers,
      otherPlace,
      ...(paths.length > 0 && { paths: pathsFrom(stand, paths) }),
    });
    if (options.json) printJson(report);
    else {
      const verb = dryRun ? "would be " : "";
      for (const path of report.restored) printText(`${verb}restored  ${path}`);
      for (const path of report.removed) printText(`${verb}removed  ${path}`);
      for (const path of topmost(report.others)) printLine(`moor: Stays, since no call made it: ${path}`);
      printSome(report.left, ({ path, reason }) => printLine(`moor: Untouched: ${path}: ${reason}`));
      for (const { path, reason } of report.failed) printLine(`moor: Not restored: ${path}: ${reason}`);
      if (report.undo !== null) printLine(`moor: \`${restoreLine(report.undo, options)}\` undoes this`);
    }
    return report.failed.length === 0 ? EXIT.ok : EXIT.failed;
  });
}

/** Of paths that nothing is done with, a person sees so many. */
const SHOWN = 20;

function printSome<Each>(all: readonly Each[], print: (each: Each) => void): void {
  for (const each of all.slice(0, SHOWN)) print(each);
  if (all.length > SHOWN) printLine(`moor: and ${all.length - SHOWN} more, which --json lists`);
}

/** Where a person stands in a checkpoint's folder, below its top. */
interface Stand {
  readonly root: string;
  /** Relative to the root. */
  readonly inside: string;
}

/** @returns null at the top of the folder, and anywhere else */
function standIn(root: string): Stand | null {
  let here: string;
  try {
    here = process.cwd();
  } catch {
    // A folder that is gone is in none.
    return null;
  }
  const top = root === "/" ? root : `${root}/`;
  return here !== root && here.startsWith(top) ? { root, inside: here.slice(top.length) } : null;
}

/** Paths as a person names them from where they stand, relative to the workspace. */
function pathsFrom(stand: Stand | null, paths: readonly string[]): readonly string[] {
  return stand === null ? paths : paths.map((path) => (isAbsolute(path) ? path : join(stand.inside, path)));
}

/** Runs in the environment that is named, or else in the checkpoint's own folder of the host. */
async function withIts(
  id: string,
  options: EnvironmentOptions,
  work: (running: Running, stand: Stand | null) => Promise<number>,
): Promise<number> {
  const { environment = [], workspace, sync, config } = options;
  const workThere = (running: Running) => work(running, null);
  if (environment.length > 0) return withEnvironment(options, workThere);
  const { place, origin } = await infoOf(id);
  if (place.startsWith(HOST) && (workspace ?? sync ?? config) === undefined) {
    const root = place.slice(HOST.length);
    const own = { ...options, environment: ["local"], workspace: root };
    return withEnvironment(own, (running) => work(running, standIn(root)));
  }
  try {
    return await withEnvironment(options, workThere);
  } catch (error) {
    if (!isMoorageError(error, "INVALID_SPEC") || !error.message.startsWith("No environment")) throw error;
    const { description, spec, mirrored } = origin;
    const words = [`-e ${spec === null ? "SPEC" : shellWord(spec)}`];
    if (mirrored !== null) words.push(`--sync ${shellWord(mirrored)}`);
    throw new MoorageError(
      "INVALID_SPEC",
      `No environment is named, and ${id} is of a folder in ${description}`,
      { suggestion: `Name the environment that it was taken in: \`${words.join(" ")}\`.`, cause: error },
    );
  }
}

async function infoOf(id: string): Promise<CheckpointInfo> {
  await using checkpoints = new Checkpoints(stateDir());
  return await checkpoints.get(id);
}

/** Paths without those in a folder that is itself among them. */
function topmost(paths: readonly string[]): readonly string[] {
  const all = new Set(paths);
  return paths.filter((path) => !all.has(path.slice(0, Math.max(path.lastIndexOf("/"), 0))));
}

/** What restores another checkpoint in the same environment and folder, to be pasted into a shell. */
function restoreLine(
  id: string,
  {
    environment = [],
    workspace,
    sync,
    config,
  }: Pick<EnvironmentOptions, "environment" | "workspace" | "sync" | "config">,
): string {
  const words = ["moor", "checkpoints", "restore", id, ...environment.flatMap((spec) => ["-e", spec])];
  for (const [name, value] of Object.entries({ workspace, sync, config })) {
    if (value !== undefined) words.push(`--${name}`, value);
  }
  return words.map(shellWord).join(" ");
}

/** Runs in the one environment that is named; no tools are needed for it. */
function withEnvironment(
  options: EnvironmentOptions,
  work: (running: Running) => Promise<number>,
): Promise<number> {
  return withMoorage(
    onlyOne(options),
    async (running) => {
      await running.start();
      return work(running);
    },
    { hasTools: false },
  );
}

/** For a terminal: coloured, and without the control characters of contents that an agent has written. */
function coloured(text: string): string {
  return text
    .split("\n")
    .map((whole) => {
      const line = whole.replaceAll(CONTROLS, visible);
      if (/^(\+\+\+|---) /.test(line)) return styleText("bold", line);
      if (line.startsWith("+")) return styleText("green", line);
      if (line.startsWith("-")) return styleText("red", line);
      return line.startsWith("@@") ? styleText("cyan", line) : line;
    })
    .join("\n");
}
