import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { carriers } from "../carriers.ts";

/** What an environment left on this machine: processes that carry its mark, and files of its records. */
export async function leftovers(mark: string, stateDir: string): Promise<string[]> {
  const files = await readdir(stateDir, { recursive: true, withFileTypes: true });
  // Full outputs are kept for later reading, as the contract says.
  const records = files.filter(
    (file) => !file.isDirectory() && file.parentPath !== join(stateDir, "outputs"),
  );
  return [
    ...(await carriers(mark)).map((pid) => `process ${pid}`),
    ...records.map(({ name }) => `file ${name}`),
  ];
}
