/** What is at a path, itself and not what a link there leads to. */
import { lstatSync } from "node:fs";

export type Kind = "missing" | "link" | "folder" | "other";

export function kindOf(path: string): Kind {
  try {
    // Most are missing, and an error takes longer than the question.
    const stat = lstatSync(path, { throwIfNoEntry: false });
    if (stat === undefined) return "missing";
    return stat.isSymbolicLink() ? "link" : stat.isDirectory() ? "folder" : "other";
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOTDIR") return "missing";
    throw error;
  }
}
