/** What callers may ask for: commands, their options, parts of logs, conditions to wait for. */
import { MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import type { Command, ExecOptions, WaitCondition } from "../base.ts";

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** @throws {MoorageError} what `fail` makes, by default INVALID_ARGUMENTS, naming the variable that cannot be set */
export function checkVariables(env: Readonly<Record<string, string>>, fail = invalid): void {
  for (const [name, value] of Object.entries(env)) {
    if (!NAME.test(name)) throw fail(`"${name}" is no variable name`);
    if (value.includes("\0")) throw fail(`variable "${name}" holds a NUL byte`);
  }
}

/** @throws {MoorageError} INVALID_ARGUMENTS unless it is a whole number from `min` on */
export function checkWhole(name: string, value: number, min: number): void {
  if (!Number.isSafeInteger(value) || value < min) {
    throw invalid(
      `${name} must be a whole number${Number.isFinite(min) ? ` from ${min} on` : ""}, not ${value}`,
    );
  }
}

/** @throws {MoorageError} INVALID_ARGUMENTS for a part of a log that cannot be meant */
export function checkSlice({
  offset,
  maxBytes,
}: {
  readonly offset?: number;
  readonly maxBytes?: number;
}): void {
  if (offset !== undefined) checkWhole("offset", offset, Number.NEGATIVE_INFINITY);
  if (maxBytes !== undefined) checkWhole("maxBytes", maxBytes, 1);
}

/** @throws {MoorageError} INVALID_ARGUMENTS for a condition that cannot come true */
export function checkCondition({ port, timeoutMs }: WaitCondition): void {
  if (port !== undefined && !(Number.isInteger(port) && port > 0 && port < 65_536))
    throw invalid(`port must be between 1 and 65535, not ${port}`);
  if (timeoutMs !== undefined && !(timeoutMs >= 0))
    throw invalid(`timeoutMs must not be negative, but is ${timeoutMs}`);
}

function invalid(message: string): MoorageError {
  return new MoorageError("INVALID_ARGUMENTS", `Cannot use these options: ${message}`);
}

function refuse(message: string): MoorageError {
  return new MoorageError("EXECUTION_REFUSED", `Cannot run the command: ${message}`);
}

/** @throws {MoorageError} EXECUTION_REFUSED naming what is wrong */
export function checkCommand(command: Command): void {
  const words = typeof command === "string" ? [command] : command;
  if (words.length === 0) throw refuse("the argument list is empty");
  if (words.some((word) => word.includes("\0"))) throw refuse("it holds a NUL byte");
  const bytes = words.reduce((sum, word) => sum + Buffer.byteLength(word) + 1, 0);
  if (bytes > limits.commandMaxBytes)
    throw refuse(`it has ${bytes} bytes, the limit is ${limits.commandMaxBytes}`);
  if (typeof command !== "string" && (command[0] === "" || command[0]?.startsWith("-"))) {
    throw refuse(`"${command[0]}" is no program name`);
  }
}

/** @throws {MoorageError} EXECUTION_REFUSED or INVALID_ARGUMENTS naming what is wrong */
export function checkOptions(options: ExecOptions): void {
  checkVariables(options.env ?? {}, refuse);
  if (options.cwd?.includes("\0")) throw refuse("the working directory holds a NUL byte");
  for (const name of ["timeoutMs", "yieldMs"] as const) {
    const value = options[name];
    if (value !== undefined && !(value > 0)) throw invalid(`${name} must be positive, not ${value}`);
  }
  if (options.captureBytes !== undefined) checkWhole("captureBytes", options.captureBytes, 1);
  const stdinBytes =
    typeof options.stdin === "string" ? Buffer.byteLength(options.stdin) : (options.stdin?.byteLength ?? 0);
  if (stdinBytes > limits.stdinMaxBytes) {
    throw refuse(`standard input has ${stdinBytes} bytes, the limit is ${limits.stdinMaxBytes}`);
  }
}
