/** Mirrors a folder of this host around a command, as `--sync` asks for, and tells what came of it. */
import { statSync } from "node:fs";
import type { MoorageError } from "../errors.ts";
import type { Moorage } from "../moorage.ts";
import { badUsage } from "./failure.ts";
import { listed, printLine } from "./output.ts";
import type { ProgressView } from "./progress-view.ts";

export type MirrorReport = Awaited<ReturnType<Moorage["sync"]>>;
type SyncCall = Parameters<Moorage["sync"]>[1];

/** What ends a conflict. */
const WAYS_OUT =
  "moor: `moor sync push --overwrite PATH` settles it by the content here, merged or not; `moor sync pull --overwrite PATH` by the environment's";

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

/** Progress as a bar on a terminal, and as nothing elsewhere. */
export function shown(view: ProgressView): Pick<SyncCall, "onProgress"> {
  if (!process.stderr.isTTY) return {};
  return { onProgress: ({ message, fraction }) => view.show({ environment: "sync", message, fraction }) };
}

/**
 * Tells a person of conflicts and of what was left out.
 * @param told lines that need not be said again, and what is said
 */
export function remark({ conflicts, skipped }: MirrorReport, told = new Set<string>()): void {
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
