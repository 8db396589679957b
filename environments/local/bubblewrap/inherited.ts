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

export interface Launch {
  /** Finds a shell. */
  readonly program: (name: string) => string;
  /** Descriptors that the program must not have. */
  readonly closed: readonly number[];
  /** What is done beside the program while it starts, which is ended when that fails. */
  readonly beside: string | null;
}

/**
 * The same program, become of a shell that does first what this process cannot. bash where descriptors are closed, since
 * other shells know no number above 9.
 */
export function launched(argv: readonly string[], { program, closed, beside }: Launch): readonly string[] {
  if (closed.length === 0 && beside === null) return argv;
  const lines = [
    ...(closed.length > 0 ? [`exec ${closed.map((descriptor) => `${descriptor}>&-`).join(" ")}`] : []),
    ...(beside === null ? [] : [`{ ${beside} || kill -KILL $$; } </dev/null &`]),
    'exec "$@"',
  ];
  const shell = closed.length > 0 ? [program("bash"), "--noprofile", "--norc", "-c"] : [program("sh"), "-c"];
  return [...shell, lines.join("\n"), "sh", ...argv];
}
