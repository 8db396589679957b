/** `moor sync`, and the mirroring around a command that `--sync` asks for. */
import { once } from "node:events";
import { statSync } from "node:fs";
import { relative, resolve } from "node:path";
import type { MoorageError } from "../errors.ts";
import type { Moorage } from "../moorage.ts";
import { EXIT } from "./exit.ts";
import { badUsage, printFailure } from "./failure.ts";
import type { EnvironmentOptions } from "./options.ts";
import { listed, printJson, printLine, printText } from "./output.ts";
import type { ProgressView } from "./progress-view.ts";
import { onlyOne, withMoorage } from "./runtime.ts";

type Report = Awaited<ReturnType<Moorage["sync"]>>;
type SyncCall = Parameters<Moorage["sync"]>[1];

export interface SyncFolderOptions extends EnvironmentOptions {
  /** Paths whose conflicts go the direction's way, relative to the folder. */
  readonly overwrite?: readonly string[];
}

/** What ends a conflict. */
const WAYS_OUT =
  "moor: `moor sync push --overwrite PATH` settles it by the content here, merged or not; `moor sync pull --overwrite PATH` by the environment's";

export async function syncFolder(
  action: "push" | "pull" | "status",
  folder: string,
  options: SyncFolderOptions,
): Promise<number> {
  refuseSync(options);
  requireFolder(folder);
  const overwrite = options.overwrite?.map((path) => pathIn(folder, path));
  return withMoorage(
    onlyOne(options),
    async ({ moorage, lifetime: { abortSignal }, start, view }) => {
      await start();
      const report = await moorage.sync(folder, {
        direction: action === "status" ? "both" : action,
        dryRun: action === "status",
        ...(overwrite && { overwrite }),
        abortSignal,
        ...shown(view),
      });
      view.clear();
      if (options.json) printJson(report);
      else print(report);
      return report.conflicts.length === 0 ? EXIT.ok : EXIT.failed;
    },
    { hasTools: false },
  );
}

/** Copies in before a command, or both ways after it, and tells what a person should know. */
export async function syncAround(
  moorage: Moorage,
  folder: string,
  direction: "push" | "both",
  view: ProgressView,
): Promise<void> {
  const report = await moorage.sync(folder, { direction, ...shown(view) });
  view.clear();
  remark(report, toldAround);
  // Whoever ran a command elsewhere learns what that did to their folder.
  if (report.pulled.length > 0) printLine(`moor: Changed in ${folder}: ${listed(report.pulled)}`);
}

/** What was told of the folder of `--sync`: both runs around a command find the same. */
const toldAround = new Set<string>();

/** Mirrors all along, beside a command that lasts. */
export function syncAlong(moorage: Moorage, folder: string): ReturnType<Moorage["watchFolder"]> {
  return moorage.watchFolder(folder, {
    direction: "both",
    onReport: (report) => remark(report, toldAround),
    onFailure: (error) => {
      printLine(`moor: Not mirrored: ${error instanceof Error ? error.message : String(error)}`);
    },
  });
}

/** `moor sync watch`: both ways until a signal ends it. */
export async function watchSync(folder: string, options: EnvironmentOptions): Promise<number> {
  refuseSync(options);
  requireFolder(folder);
  return withMoorage(
    onlyOne(options),
    async ({ moorage, lifetime: { abortSignal }, start }) => {
      await start();
      await using _watch = await moorage.watchFolder(folder, {
        direction: "both",
        onReport: (report) => (options.json ? printJson(report) : print(report)),
        onFailure: printFailure,
      });
      if (!abortSignal.aborted) await once(abortSignal, "abort");
      return EXIT.ok;
    },
    { hasTools: false },
  );
}

/** Before an environment is started for it. @throws {MoorageError} INVALID_ARGUMENTS */
export function requireFolder(folder: string): void {
  const refuse = (reason: string): MoorageError =>
    badUsage(`Cannot mirror "${folder}": ${reason}`, "Name a folder of this host.");
  let isFolder: boolean;
  try {
    isFolder = statSync(folder).isDirectory();
  } catch (error) {
    throw refuse(error instanceof Error ? error.message : String(error));
  }
  if (!isFolder) throw refuse("it is no folder");
}

/** As the outcome names it: relative to the mirrored folder. @throws {MoorageError} INVALID_ARGUMENTS */
function pathIn(folder: string, path: string): string {
  if (path === "") throw badUsage("Cannot overwrite a path without a name", "Give . for all conflicts.");
  const root = resolve(folder);
  const inside = relative(root, resolve(root, path));
  if (inside !== ".." && !inside.startsWith("../")) return inside;
  throw badUsage(
    `Cannot overwrite "${path}": it is not in "${folder}"`,
    "Name a path that the outcome shows, relative to the mirrored folder.",
  );
}

function refuseSync({ sync }: EnvironmentOptions): void {
  if (sync !== undefined) throw badUsage("`moor sync` takes no --sync", "Name the folder as an argument.");
}

/** Progress as a bar on a terminal, and as nothing elsewhere. */
function shown(view: ProgressView): Pick<SyncCall, "onProgress"> {
  if (!process.stderr.isTTY) return {};
  return { onProgress: ({ message, fraction }) => view.show({ environment: "sync", message, fraction }) };
}

function print(report: Report): void {
  for (const path of report.pushed) printText(`-> ${path}`);
  for (const path of report.pulled) printText(`<- ${path}`);
  remark(report);
}

/** @param told lines that need not be said again, and what is said */
function remark({ conflicts, skipped }: Report, told = new Set<string>()): void {
  for (const { path, copy } of conflicts) {
    const where = copy === null ? "" : `; the environment's content is in ${copy}`;
    printLine(`moor: Changed on both sides: ${path}${where}`);
  }
  if (conflicts.length > 0 && !told.has(WAYS_OUT)) {
    printLine(WAYS_OUT);
    told.add(WAYS_OUT);
  }
  for (const [reason, entries] of Map.groupBy(skipped, (each) => each.reason)) {
    const paths = entries.flatMap(({ path }) => (path === "" ? [] : [path]));
    const line =
      paths.length === 0
        ? `moor: Not mirrored: ${reason}`
        : `moor: Not mirrored, ${reason}: ${listed(paths)}`;
    if (!told.has(line)) printLine(line);
    told.add(line);
  }
}
