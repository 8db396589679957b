/** Writing: one round trip, seen by others in one step. */
import { isUtf8 } from "node:buffer";
import { randomBytes } from "node:crypto";
import { MoorageError } from "../../../src/errors.ts";
import type { WriteOptions, WriteReceipt } from "../../base.ts";
import type { SystemRunOptions } from "../stream.ts";
import { inTurn } from "../turns.ts";
import { fileError } from "./path.ts";
import { contentHash } from "./read.ts";
import { type FileContext, resolvePath, runFile, takeField } from "./run.ts";

/** Content up to this size travels inside the script and is written by the shell itself, bytes. */
const INLINE_BYTES = 32 * 1024;

/** What a set of changes needs to take a write back. */
export interface Written {
  readonly receipt: WriteReceipt;
  /** The first folder that had to be made, absolute; empty when none was. */
  readonly madeFolder: string;
}

/** A name beside the target that nobody can have planted. */
export function temporaryName(): string {
  return `.moorage-${randomBytes(16).toString("hex")}`;
}

/**
 * Of writes that expect the same content one wins: each compares and replaces in its turn, since between the two another
 * could come in. Against writers elsewhere there is the comparison alone.
 *
 * @param backup name beside the target under which the old file stays, when there is one
 * @throws {MoorageError} FILE_CHANGED, FILE_IS_DIRECTORY, FILE_NOT_REGULAR, FILE_PERMISSION, …
 */
export async function writeWhole(
  context: FileContext,
  path: string,
  data: string | Uint8Array,
  options: WriteOptions = {},
  backup?: string,
): Promise<Written> {
  if (typeof options.expectedHash !== "string") return writeOnce(context, path, data, options, backup);
  const target = await resolvePath(context, path, options.cwd, "write");
  return inTurn(context.system, target, () => writeOnce(context, path, data, options, backup));
}

async function writeOnce(
  context: FileContext,
  path: string,
  data: string | Uint8Array,
  options: WriteOptions,
  backup: string | undefined,
): Promise<Written> {
  const bytes = toBytes(data, path);
  if (/\/\.?$/.test(path)) throw fileError("FILE_IS_DIRECTORY", "write", path, "the path ends in a slash");
  const temporary = temporaryName();
  const inline = bytes.length <= INLINE_BYTES;
  const runOptions: SystemRunOptions = {
    ...(!inline && { stdin: bytes }),
    ...(options.abortSignal && { abortSignal: options.abortSignal }),
    maxBytes: (options.previousMaxBytes ?? 0) + 64 * 1024,
  };
  try {
    const output = await runFile(context, {
      verb: "write",
      path,
      cwd: options.cwd,
      command: "__moor_write",
      args: [
        temporary,
        modeText(options.mode),
        expectedText(options.expectedHash),
        options.previousMaxBytes ?? 0,
        backup ?? "-",
        bytes.length,
        ...(inline ? printfArguments(bytes) : []),
      ],
      options: runOptions,
    });
    return parseWritten(output, bytes, options);
  } catch (error) {
    await sweep(context, path, options.cwd, temporary);
    if (backup !== undefined) await sweep(context, path, options.cwd, backup);
    throw error;
  }
}

/** Removes what a failed write left; when even that cannot run, the environment is lost and its files with it. */
async function sweep(
  context: FileContext,
  path: string,
  cwd: string | undefined,
  temporary: string,
): Promise<void> {
  await runFile(context, { verb: "write", path, cwd, command: "__moor_sweep", args: [temporary] }).catch(
    () => undefined,
  );
}

function parseWritten(output: Buffer, bytes: Uint8Array, options: WriteOptions): Written {
  const [realPath, afterPath] = takeField(output);
  const [created, afterCreated] = takeField(afterPath);
  const [madeFolder, previous] = takeField(afterCreated);
  const whole = previous.at(-1) === "=".charCodeAt(0);
  return {
    receipt: {
      realPath,
      hash: contentHash(bytes),
      bytesWritten: bytes.length,
      created: created === "1",
      ...(options.previousMaxBytes !== undefined && {
        previous: whole ? previous.subarray(0, -1) : null,
      }),
    },
    madeFolder,
  };
}

function toBytes(data: string | Uint8Array, path: string): Uint8Array {
  if (typeof data !== "string") return data;
  if (!data.isWellFormed()) {
    const reason = "the text holds half of a surrogate pair, which UTF-8 cannot express";
    throw fileError("INVALID_ARGUMENTS", "write", path, reason);
  }
  return Buffer.from(data);
}

function modeText(mode: number | undefined): string {
  if (mode === undefined) return "-";
  if (!Number.isInteger(mode) || mode < 0 || mode > 0o7777) {
    throw new MoorageError(
      "INVALID_ARGUMENTS",
      `Cannot write: mode must be between 0 and 0o7777, not ${mode}`,
    );
  }
  return mode.toString(8).padStart(4, "0");
}

/** The hash in the library's form. Anything that is no SHA-256 equals no content. */
export function expectedText(expected: string | undefined): string {
  if (expected === undefined) return "-";
  return expected === "absent" ? expected : expected.replace(/^sha256:/, "").toLowerCase() || "none";
}

/** Format and text from which `printf` makes `bytes`: text as it is, anything else in printable ASCII. */
function printfArguments(bytes: Uint8Array): readonly [string, string] {
  if (!bytes.includes(0) && isUtf8(bytes)) return ["%s", Buffer.from(bytes).toString()];
  let format = "";
  for (const byte of bytes) {
    const character = String.fromCharCode(byte);
    if (character === "%") format += "%%";
    else if (character === "\\") format += "\\\\";
    else if (byte === 10 || byte === 9 || (byte >= 32 && byte < 127 && character !== "-"))
      format += character;
    else format += `\\${byte.toString(8).padStart(3, "0")}`;
  }
  return [format, ""];
}
