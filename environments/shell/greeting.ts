/** What a shell tells of itself before its first call. */
import { parseExports } from "./exports.ts";
import type { ShellKind } from "./phrases.ts";

export interface WorkerFacts {
  readonly shell: ShellKind;
  readonly pid: number;
  readonly home: string;
  readonly cwd: string;
  readonly uid: number;
  /** Variables of a fresh shell, one byte a character. */
  readonly variables: ReadonlyMap<string, string>;
  /** Whether a fresh shell has functions, which bash takes from its variables. */
  readonly hasFunctions: boolean;
  /** Variables of a login shell, when they were asked for and could be read. */
  readonly login: ReadonlyMap<string, string> | null;
  /** See `CallScript.reaper`. */
  readonly reaper: string | null;
}

/** What a shell's greeting says of it, and the processes that its reaper had adopted by then. */
export function parseHello(
  fields: readonly string[],
  login: ReadonlyMap<string, string> | null,
): { readonly facts: WorkerFacts; readonly orphans: readonly number[] } {
  const [bashVersion = "", pid = "", home = "", cwd = "/", uid = "", reaper = "", orphans = "", ...rest] =
    fields;
  const [functions = "", ...exports] = rest;
  const facts: WorkerFacts = {
    shell: bashVersion === "" ? "sh" : "bash",
    pid: Number(pid),
    home: home || "/",
    cwd,
    uid: Number(uid),
    variables: parseExports(exports.join("\0")),
    hasFunctions: functions !== "",
    login,
    reaper: reaper === "" ? null : reaper,
  };
  return { facts, orphans: pidList(orphans) };
}

export function pidList(text: string): number[] {
  return text
    .split(" ")
    .filter((pid) => pid !== "")
    .map(Number);
}
