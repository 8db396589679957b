import { MoorageError } from "../../src/errors.ts";
import type { EnvironmentProcesses, ShellSession } from "../base.ts";
import type { SystemShell } from "./stream.ts";
export interface ShellProcesses extends EnvironmentProcesses {
  stopAll(): Promise<void>;
  listening(port: number): Promise<boolean>;
}
export function createProcesses(
  _system: SystemShell,
  _facts: {
    workspace: () => string;
    variables: (
      session: ShellSession | undefined,
    ) => Promise<{ cwd: string; variables: ReadonlyMap<string, string | null> }>;
  },
): ShellProcesses {
  const no = () => {
    throw new MoorageError("UNSUPPORTED", "Processes are not merged yet");
  };
  return { start: no, list: async () => [], get: no, stopAll: async () => {}, listening: no };
}
