/** The files as a patch will leave them: every operation is tried here, on what those before it made, before any is written. */
import type { EnvironmentFiles, FileChange } from "../environments/base.ts";
import { isMoorageError, MoorageError } from "../src/errors.ts";
import { applyChunks } from "./patch-chunks.ts";
import type { PatchChunk, PatchOperation } from "./patch-v4a.ts";
import { decodeFile, encodeFile, fromFileText, toFileText } from "./text-encoding.ts";

interface Entry {
  /** As the patch names it. */
  readonly path: string;
  readonly realPath: string;
  /** Content and hash on disk before the patch; null when there is no file. */
  readonly original: Buffer | null;
  readonly originalHash: string | null;
  /** Content so far; null when there is none. */
  content: Buffer | null;
  /** Whether the patch has written, moved or removed it, so that what is on disk before this step is ours. */
  touched: boolean;
  movedFrom?: string;
}

export interface PlannedFile {
  readonly path: string;
  readonly before: Buffer | null;
  readonly after: Buffer | null;
  readonly movedFrom?: string;
}

export interface PatchPlan {
  readonly changes: readonly FileChange[];
  readonly files: readonly PlannedFile[];
  readonly notes: readonly string[];
}

/** @throws {MoorageError} FILE_EXISTS, FILE_MISSING, PATCH_*; nothing has been written then */
export async function planPatch(
  files: EnvironmentFiles,
  operations: readonly PatchOperation[],
  cwd: string,
): Promise<PatchPlan> {
  const overlay = new Overlay(files, cwd);
  for (const operation of operations) await overlay.apply(operation);
  return overlay.plan();
}

class Overlay {
  readonly #files: EnvironmentFiles;
  readonly #cwd: string;
  readonly #entries = new Map<string, Entry>();
  readonly #changes: FileChange[] = [];
  readonly #notes: string[] = [];

  constructor(files: EnvironmentFiles, cwd: string) {
    this.#files = files;
    this.#cwd = cwd;
  }

  plan(): PatchPlan {
    const files = [...this.#entries.values()]
      .filter(({ touched }) => touched)
      .map(({ path, original, content, movedFrom }) => ({
        path,
        before: original,
        after: content,
        ...(movedFrom !== undefined && { movedFrom }),
      }));
    return { changes: this.#changes, files, notes: this.#notes };
  }

  async apply(operation: PatchOperation): Promise<void> {
    const entry = await this.#entry(operation.path);
    switch (operation.kind) {
      case "add":
        if (entry.content !== null) {
          throw this.#refuse("FILE_EXISTS", "add", entry, "it exists; use Update File to change it");
        }
        this.#write(entry, Buffer.from(operation.content));
        return;
      case "delete":
        this.#delete(entry, operation.chunks);
        return;
      case "update":
        await this.#update(entry, operation);
    }
  }

  #delete(entry: Entry, chunks: readonly PatchChunk[] | undefined): void {
    const content = this.#need(entry, "delete");
    // A unified diff shows what it deletes, so that is held to be what is there.
    if (chunks && chunks.length > 0) this.#patched(entry, content, chunks, true);
    const expectedHash = entry.touched ? null : entry.originalHash;
    this.#changes.push({
      kind: "remove",
      path: entry.realPath,
      ...(expectedHash !== null && { expectedHash }),
    });
    entry.content = null;
    entry.touched = true;
  }

  async #update(entry: Entry, operation: PatchOperation & { readonly kind: "update" }): Promise<void> {
    const content = this.#need(entry, "patch");
    const patched = this.#patched(entry, content, operation.chunks, operation.unique ?? false);
    if (operation.moveTo === undefined) {
      this.#write(entry, patched);
      return;
    }
    const target = await this.#entry(operation.moveTo);
    if (target.content !== null) {
      const what = `move ${JSON.stringify(entry.path)} to`;
      throw this.#refuse("FILE_EXISTS", what, target, "it exists");
    }
    if (!patched.equals(content)) this.#write(entry, patched);
    this.#changes.push({ kind: "rename", from: entry.realPath, to: target.realPath });
    target.content = patched;
    target.touched = true;
    target.movedFrom = entry.movedFrom ?? entry.path;
    entry.content = null;
    entry.touched = true;
  }

  #patched(entry: Entry, content: Buffer, chunks: readonly PatchChunk[], unique: boolean): Buffer {
    if (chunks.length === 0) return content;
    const file = decodeFile(content);
    if (!file) throw this.#refuse("FILE_BINARY", "patch", entry, "the file is binary");
    const inFile = chunks.map((chunk) => ({
      ...chunk,
      contexts: chunk.contexts.map((text) => toFileText(file, text)),
      edits: chunk.edits.map(({ kind, text }) => ({ kind, text: toFileText(file, text) })),
    }));
    const result = applyChunks(entry.path, file.text, inFile, unique);
    this.#notes.push(...result.notes.map((note) => fromFileText(file, note)));
    return encodeFile(file, result.text);
  }

  #write(entry: Entry, bytes: Buffer): void {
    const expectedHash = entry.touched ? undefined : (entry.originalHash ?? "absent");
    this.#changes.push({
      kind: "write",
      path: entry.realPath,
      bytes,
      options: expectedHash === undefined ? {} : { expectedHash },
    });
    entry.content = bytes;
    entry.touched = true;
  }

  #need(entry: Entry, verb: string): Buffer {
    if (entry.content === null) throw this.#refuse("FILE_MISSING", verb, entry, "no such file or directory");
    return entry.content;
  }

  /** Two spellings of one file are one entry. */
  async #entry(path: string): Promise<Entry> {
    for (const entry of this.#entries.values()) if (entry.path === path) return entry;
    const loaded = await this.#load(path);
    const known = this.#entries.get(loaded.realPath);
    if (known) return known;
    this.#entries.set(loaded.realPath, loaded);
    return loaded;
  }

  async #load(path: string): Promise<Entry> {
    try {
      const { realPath, bytes, hash } = await this.#files.readFile(path, { cwd: this.#cwd });
      return { path, realPath, original: bytes, originalHash: hash, content: bytes, touched: false };
    } catch (error) {
      if (!isMoorageError(error, "FILE_MISSING")) throw error;
    }
    const realPath = await this.#files.realPath(path, { cwd: this.#cwd });
    return { path, realPath, original: null, originalHash: null, content: null, touched: false };
  }

  #refuse(
    code: "FILE_EXISTS" | "FILE_MISSING" | "FILE_BINARY",
    verb: string,
    entry: Entry,
    reason: string,
  ): MoorageError {
    return new MoorageError(code, `Cannot ${verb} ${JSON.stringify(entry.path)}: ${reason}`, {
      details: { path: entry.path },
    });
  }
}
