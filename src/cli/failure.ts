/** How a failure of ours is shown: `moor: CODE: message`, then what to do about it. */
import { type ErrorReport, MoorageError, toMoorageError } from "../errors.ts";
import { didYouMean } from "../nearest.ts";
import { printJson, printLine } from "./output.ts";

/**
 * Prints to stderr; with `json` also `{"error": {...}}` to stdout, so that a program reading our output sees it.
 * A fault of ours (INTERNAL) comes with its stack, for the report.
 */
export function printFailure(error: unknown, options: { readonly json?: boolean } = {}): void {
  const failure = toMoorageError(error);
  printReport(failure.report());
  if (failure.code === "INTERNAL") {
    const { cause } = failure;
    printLine((cause instanceof Error ? cause.stack : failure.stack) ?? String(cause));
  }
  if (options.json) printJson({ error: failure.report() });
}

/** Prints a failure that came as data. */
export function printReport({ code, message, suggestion }: ErrorReport): void {
  printLine(`moor: ${code}: ${message}`);
  printLine(suggestion);
}

/** What was asked for in words that mean nothing here. */
export function badUsage(message: string, suggestion: string): MoorageError {
  return new MoorageError("INVALID_ARGUMENTS", message, { suggestion });
}

/** A name that must be one of some. @throws {MoorageError} INVALID_ARGUMENTS naming the nearest */
export function oneOf<Name extends string>(what: string, name: string, valid: readonly Name[]): Name {
  const found = valid.find((each) => each === name);
  if (found !== undefined) return found;
  throw badUsage(`Unknown ${what} "${name}"${didYouMean(name, valid)}`, `Valid are ${valid.join(", ")}.`);
}
