import { MoorageError } from "../../src/errors.ts";
import type { EnvironmentFiles } from "../base.ts";
import type { SystemShell } from "./stream.ts";
export const FILE_LIBRARY = "";
export function createFiles(_system: SystemShell, _facts: { workspace: () => string }): EnvironmentFiles {
  const no = () => {
    throw new MoorageError("UNSUPPORTED", "Files are not merged yet");
  };
  return {
    readFile: no,
    readLines: no,
    writeFile: no,
    apply: no,
    stat: no,
    list: no,
    remove: no,
    rename: no,
    mkdir: no,
    realPath: no,
  };
}
