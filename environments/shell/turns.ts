/** What must not run side by side in one environment, one after the other. */
import type { SystemShell } from "./stream.ts";

/** The last action under each name, by system shell. */
const turns = new WeakMap<SystemShell, Map<string, Promise<unknown>>>();

/** Runs `action` when the earlier ones of this name are over, whatever came of them. */
export async function inTurn<Result>(
  system: SystemShell,
  name: string,
  action: () => Promise<Result>,
): Promise<Result> {
  const bySystem = turns.get(system) ?? new Map<string, Promise<unknown>>();
  turns.set(system, bySystem);
  const turn = (bySystem.get(name) ?? Promise.resolve()).then(action, action);
  bySystem.set(name, turn);
  try {
    return await turn;
  } finally {
    if (bySystem.get(name) === turn) bySystem.delete(name);
  }
}
