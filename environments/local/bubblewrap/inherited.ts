/**
 * Descriptors that this process has from its own parent and that every program it starts would have too. Node keeps the
 * low ones to itself; a high one that leads to a folder of the host would lead out of a sandbox, by `/proc/1/fd` as well.
 */
import { readdirSync, readFileSync } from "node:fs";

const CLOSED_ON_EXEC = 0o2000000;

/** Numbers of the descriptors from 3 on that are not closed when a program starts. */
export function inheritedDescriptors(): readonly number[] {
  return readdirSync("/proc/self/fd")
    .map(Number)
    .filter((descriptor) => {
      if (descriptor < 3) return false;
      try {
        const flags = /^flags:\s*([0-7]+)/m.exec(readFileSync(`/proc/self/fdinfo/${descriptor}`, "latin1"));
        return flags !== null && (Number.parseInt(flags[1] ?? "", 8) & CLOSED_ON_EXEC) === 0;
      } catch {
        // It was the one that listed them, or is closed since.
        return false;
      }
    });
}

/**
 * The same program without these descriptors. bash, since other shells know no number above 9.
 *
 * @param kept descriptors below this are the program's own
 */
export function withoutDescriptors(
  argv: readonly string[],
  descriptors: readonly number[],
  kept: number,
): readonly string[] {
  const closed = descriptors.filter((descriptor) => descriptor >= kept);
  if (closed.length === 0) return argv;
  const script = `exec ${closed.map((descriptor) => `${descriptor}>&-`).join(" ")}; exec "$@"`;
  return ["bash", "--noprofile", "--norc", "-c", script, "bash", ...argv];
}
