/** Files of a served session. All paths are walked inside the environment, as its own user, never on this machine. */
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { extract } from "tar-stream";
import type { BaseEnvironment, FileChange } from "../../environments/base.ts";
import { isMoorageError } from "../errors.ts";
import { limits } from "../limits.ts";
import { ApiError, badRequest } from "./api-error.ts";

interface PackedFile {
  readonly path: string;
  readonly mode: number;
  readonly bytes: Buffer;
}

interface Unpacked {
  readonly files: readonly PackedFile[];
  readonly folders: readonly string[];
}

/** Paths of one command: of the longest, as many as a program takes. */
const CHMOD_FILES = 250;
/** Bytes asked of a file at once. */
const PIECE_BYTES = 4 * 1024 * 1024;

/**
 * Writes the files of a gzip-compressed tar below `root`: all of them or none.
 *
 * @throws {ApiError} 400 for an archive that is broken, too large, or names anything but files and folders below `root`
 */
export async function writeArchive(
  environment: BaseEnvironment,
  root: string,
  archive: Buffer,
): Promise<void> {
  if (!root.startsWith("/")) throw badRequest("x-cwd must be an absolute path");
  const { files, folders } = await unpack(archive, root);
  for (const folder of folders) await environment.files.mkdir(folder);
  const changes = files.map(
    ({ path, mode, bytes }): FileChange => ({ kind: "write", path, bytes, options: { mode } }),
  );
  const receipts = await environment.files.apply(changes);
  await setModes(
    environment,
    // What was there before kept its mode; an archive sets it.
    files.flatMap(({ mode }, at) => {
      const receipt = receipts[at];
      return receipt && !receipt.created ? [{ mode, path: receipt.realPath }] : [];
    }),
  );
}

/** In few commands, since a client does not wait for one each. A file that is named twice gets its last mode. */
async function setModes(
  environment: BaseEnvironment,
  files: readonly { readonly mode: number; readonly path: string }[],
): Promise<void> {
  const last = new Map(files.map(({ path, mode }) => [path, mode]));
  const byMode = Map.groupBy(last, ([, mode]) => mode);
  for (const [mode, entries] of byMode) {
    for (let at = 0; at < entries.length; at += CHMOD_FILES) {
      const paths = entries.slice(at, at + CHMOD_FILES).map(([path]) => path);
      await environment.exec(["chmod", mode.toString(8), ...paths], { cwd: "/" });
    }
  }
}

async function unpack(archive: Buffer, root: string): Promise<Unpacked> {
  const files: PackedFile[] = [];
  const folders: string[] = [];
  const reader = extract();
  const reading = (async () => {
    for await (const entry of reader) {
      const { name, type, mode = 0o644 } = entry.header;
      if (files.length + folders.length >= limits.serveArchiveMaxFiles) {
        throw badRequest(`The archive has more than ${limits.serveArchiveMaxFiles} entries`);
      }
      const path = place(root, name, type === "directory");
      const chunks: Buffer[] = [];
      for await (const part of entry) {
        chunks.push(Buffer.from(part as Uint8Array)); // streams of tar-stream are of bytes
      }
      if (type === "directory") folders.push(path);
      else if (type === "file" || type === "contiguous-file") {
        files.push({ path, mode: mode & 0o7777, bytes: Buffer.concat(chunks) });
      } else
        throw badRequest(
          `The archive has a ${type ?? "nameless entry"} at "${name}"; only files and folders are taken`,
        );
    }
  })();
  try {
    await Promise.all([pipeline(Readable.from([archive]), createGunzip(), withinMeasure, reader), reading]);
  } catch (error) {
    reader.destroy();
    if (error instanceof ApiError) throw error;
    throw new ApiError(400, "bad_request", `The archive cannot be read: ${reasonOf(error)}`, error);
  }
  return { files, folders };
}

/** All that is unpacked counts, headers too: the reader keeps a long one in memory. @throws {ApiError} 400 */
async function* withinMeasure(unpacked: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let bytes = 0;
  for await (const chunk of unpacked) {
    bytes += chunk.length;
    if (bytes > limits.serveUnpackedMaxBytes) {
      throw badRequest(`The archive unpacks to more than ${limits.serveUnpackedMaxBytes} bytes`);
    }
    yield chunk;
  }
}

/** @throws {ApiError} 400 when the name leads out of `root`, or is that of `root` itself and no folder's */
function place(root: string, name: string, isFolder: boolean): string {
  const parts = name.split("/").filter((part) => part !== "" && part !== ".");
  if ((parts.length === 0 && !(isFolder && name !== "")) || parts.includes("..") || name.includes("\0")) {
    throw badRequest(`The archive has an entry named "${name}"`);
  }
  return `${root.replace(/\/+$/, "")}/${parts.join("/")}`;
}

/** The file's bytes, or null when there is no such file. A file that grows meanwhile is read to where it ended. */
export async function readPieces(
  environment: BaseEnvironment,
  path: string,
  cwd: string | undefined,
): Promise<AsyncIterable<Buffer> | null> {
  const where = cwd === undefined ? {} : { cwd };
  try {
    const first = await environment.files.readFile(path, { ...where, offset: 0, maxBytes: PIECE_BYTES });
    return (async function* () {
      yield first.bytes;
      for (let offset = first.bytes.length; offset < first.size; ) {
        const { bytes } = await environment.files.readFile(first.realPath, { offset, maxBytes: PIECE_BYTES });
        if (bytes.length === 0) throw new Error(`"${path}" became shorter while it was read`);
        yield bytes;
        offset += bytes.length;
      }
    })();
  } catch (error) {
    if (isMoorageError(error, "FILE_MISSING")) return null;
    throw error;
  }
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
