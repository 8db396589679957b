/** Looks for processes of this machine by their command line. */
import { readdirSync, readFileSync } from "node:fs";

/** Pids of live processes whose arguments, joined by spaces, are `commandLine`. */
export function pidsOf(commandLine: string): readonly number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        const args = readFileSync(`/proc/${pid}/cmdline`, "utf8");
        return args.split("\0").join(" ").trim() === commandLine;
      } catch {
        // It ended while we looked.
        return false;
      }
    });
}

let counter = 0;

/** A `sleep` that no other test has: seconds that name this process and call. */
export function uniqueSleep(): string {
  counter += 1;
  return `sleep ${4_000 + counter}.${process.pid}`;
}
