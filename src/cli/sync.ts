/** `moor sync`: a folder of this host and an environment's workspace. */
import { once } from "node:events";
import { relative, resolve } from "node:path";
import { EXIT } from "./exit.ts";
import { badUsage, printFailure } from "./failure.ts";
import { type MirrorReport, remark, requireFolder, shown } from "./mirror.ts";
import type { EnvironmentOptions } from "./options.ts";
import { printJson, printText } from "./output.ts";
import { onlyOne, withMoorage } from "./runtime.ts";

export interface SyncFolderOptions extends EnvironmentOptions {
  /** Paths whose conflicts go the direction's way, relative to the folder. */
  readonly overwrite?: readonly string[];
}

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

function print(report: MirrorReport): void {
  for (const path of report.pushed) printText(`-> ${path}`);
  for (const path of report.pulled) printText(`<- ${path}`);
  remark(report);
}
