/** POSIX signals by name. */
import { constants } from "node:os";
import { MoorageError } from "../../src/errors.ts";

/** Without its `SIG`. @throws {MoorageError} INVALID_ARGUMENTS when there is no signal of that name */
export function signalName(signal: string): string {
  const name = signal.toUpperCase().replace(/^SIG/, "");
  if (`SIG${name}` in constants.signals) return name;
  throw new MoorageError("INVALID_ARGUMENTS", `Cannot send "${signal}": it is not a POSIX signal`);
}

/** Which exit code a shell would give for a program that this signal ended. */
export function signalExitCode(signal: string): number | null {
  const number = Object.entries(constants.signals).find(([name]) => name === signal)?.[1];
  return number === undefined ? null : 128 + number;
}
