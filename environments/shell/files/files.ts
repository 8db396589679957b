/** `EnvironmentFiles` over a system shell: the same functions in every environment that has a POSIX sh. */
import type { EnvironmentFiles } from "../../base.ts";
import type { SystemShell } from "../stream.ts";
import { applyChanges } from "./apply.ts";
import { makeFolder, removeFile, renameFile } from "./change.ts";
import { readBytes, readLineRange } from "./read.ts";
import type { FileContext } from "./run.ts";
import { listFolder, realPathOf, statFile } from "./stat.ts";
import { writeWhole } from "./write.ts";

/**
 * Makes the files of an environment. The shell must have `FILE_LIBRARY` defined.
 *
 * A read and a write are one round trip each. What no shell can close: between the check of `expectedHash` and the
 * rename, and between the check of a file's kind and its opening, another program of the environment has some
 * microseconds to a millisecond to put something else there. Extended attributes, ACLs and hard links of a
 * replaced file are not kept. A file that was opened before a write goes on showing the old content.
 *
 * @param facts.workspace where relative paths start; asked at each call
 * @param facts.protectedPaths what nobody inside can change, asked when a change failed. @default nothing
 */
export function createFiles(
  system: SystemShell,
  facts: { workspace: () => string; protectedPaths?: () => readonly string[] },
): EnvironmentFiles {
  let ready: Promise<void> | null = null;
  const context: FileContext = {
    system,
    workspace: facts.workspace,
    protectedPaths: facts.protectedPaths ?? (() => []),
    ready: () => {
      ready ??= system.run(":", { repeatable: true }).then(
        () => undefined,
        (error) => {
          ready = null;
          throw error;
        },
      );
      return ready;
    },
  };
  return {
    readFile: (path, options) => readBytes(context, path, options),
    readLines: (path, options) => readLineRange(context, path, options),
    writeFile: async (path, data, options) => (await writeWhole(context, path, data, options)).receipt,
    apply: (changes, options) => applyChanges(context, changes, options),
    stat: (path, options) => statFile(context, path, options),
    list: (path, options) => listFolder(context, path, options),
    remove: (path, options) => removeFile(context, path, options),
    rename: async (from, to, options) => {
      await renameFile(context, from, to, options);
    },
    mkdir: (path, options) => makeFolder(context, path, options),
    realPath: (path, options) => realPathOf(context, path, options),
  };
}
