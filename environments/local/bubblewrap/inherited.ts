/**
 * Descriptors that this process has from its own parent and that every program it starts would have too. Node keeps the
 * low ones to itself; a high one that leads to a folder of the host would lead out of a sandbox, by `/proc/1/fd` as well.
 */
import { readdirSync, readFileSync } from "node:fs";

const CLOSED_ON_EXEC = 0o2000000;

/** Numbers of the descriptors from `first` on that are not closed when a program starts. */
export function inheritedDescriptors(first: number): readonly number[] {
  return readdirSync("/proc/self/fd")
    .map(Number)
    .filter((descriptor) => {
      if (descriptor < first) return false;
      try {
        const flags = /^flags:\s*([0-7]+)/m.exec(readFileSync(`/proc/self/fdinfo/${descriptor}`, "utf8"));
        return flags !== null && (Number.parseInt(flags[1] ?? "", 8) & CLOSED_ON_EXEC) === 0;
      } catch {
        // It was the one that listed them, or is closed since.
        return false;
      }
    });
}

/**
 * What follows the first descriptors of a program, as `spawn` takes it, so that it gets none of these: each leads to
 * `nothing` in it. This process cannot close one for a program, and a shell that could would have to start first.
 *
 * @param nothing descriptor of `/dev/null`
 */
export function covering(
  inherited: readonly number[],
  { first, nothing }: { readonly first: number; readonly nothing: number },
): readonly ("ignore" | number)[] {
  const covered = new Set(inherited);
  return Array.from({ length: Math.max(first - 1, ...inherited) + 1 - first }, (_, index) =>
    covered.has(first + index) ? nothing : "ignore",
  );
}
