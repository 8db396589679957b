/**
 * The files as a patch will leave them: every operation is tried here, on what those before it made, before any is
 * written.
 */
import { posix } from "node:path";
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
  /** Set when the patch put a link here, which leads to content that another entry may hold. */
  movedLink?: boolean;
}

/** A symbolic link by its own path, not that of what it leads to. */
interface Link {
  readonly realPath: string;
  readonly target: string;
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
  /** The entry of each spelling that came up. */
  readonly #names = new Map<string, Entry>();
  #linksTaken = false;
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
    const takesName =
      operation.kind === "delete" || (operation.kind === "update" && operation.moveTo !== undefined);
    const link = takesName ? await this.#link(operation.path) : null;
    if (link && operation.kind === "delete") {
      this.#deleteLink(operation.path, link, operation.chunks);
      return;
    }
    if (link && operation.kind === "update") {
      await this.#moveLink(link, operation);
      return;
    }
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

  /** Removes the name; what it leads to stays. A diff of a link shows its target, as git writes it. */
  #deleteLink(path: string, link: Link, chunks: readonly PatchChunk[] | undefined): void {
    const text = Buffer.from(link.target);
    const entry: Entry = { ...absent(path, link.realPath), original: text, touched: true };
    if (chunks && chunks.length > 0) this.#patched(entry, text, chunks, true);
    this.#changes.push({ kind: "remove", path: link.realPath });
    this.#take(path, entry);
    this.#notes.push(`${JSON.stringify(path)} was a link to ${JSON.stringify(link.target)}, which stays`);
  }

  /** Moves the name; a change of text goes to what it leads to. */
  async #moveLink(link: Link, operation: PatchOperation & { readonly kind: "update" }): Promise<void> {
    const { path, moveTo = path, chunks } = operation;
    if (chunks.length > 0) {
      const entry = await this.#entry(path);
      const content = this.#need(entry, "patch");
      const patched = this.#patched(entry, content, chunks, operation.unique ?? false);
      if (!patched.equals(content)) this.#write(entry, patched);
    }
    const target = await this.#entry(moveTo);
    if (target.content !== null || (await this.#link(moveTo))) {
      throw this.#refuse("FILE_EXISTS", `move ${JSON.stringify(path)} to`, target, "it exists");
    }
    this.#changes.push({ kind: "rename", from: link.realPath, to: target.realPath });
    const text = Buffer.from(link.target);
    target.content = text;
    target.touched = true;
    target.movedFrom = path;
    target.movedLink = true;
    this.#take(path, { ...absent(path, link.realPath), original: text, touched: true });
    if (!link.target.startsWith("/") && posix.dirname(link.realPath) !== posix.dirname(target.realPath)) {
      const where = `from its new folder ${JSON.stringify(moveTo)}`;
      this.#notes.push(`The link still names ${JSON.stringify(link.target)}, now ${where}`);
    }
  }

  /** The name is now what `entry` says, under each of its spellings. */
  #take(path: string, entry: Entry): void {
    this.#entries.set(entry.realPath, entry);
    this.#names.set(path, entry);
    this.#linksTaken = true;
  }

  /** The link at `path`, unless this patch has put something else there. */
  async #link(path: string): Promise<Link | null> {
    try {
      const { linkTarget } = await this.#files.stat(path, { cwd: this.#cwd, follow: false });
      if (linkTarget === undefined) return null;
      const realPath = await this.#ownPath(path);
      return this.#entries.has(realPath) ? null : { realPath, target: linkTarget };
    } catch (error) {
      if (isMoorageError(error, "FILE_MISSING")) return null;
      throw error;
    }
  }

  /** The path of the name itself: its folder resolved, a link in the last place not. */
  async #ownPath(path: string): Promise<string> {
    const folder = await this.#files.realPath(posix.dirname(path), { cwd: this.#cwd });
    return posix.join(folder, posix.basename(path));
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
    const entry = this.#names.get(path) ?? (await this.#find(path));
    this.#names.set(path, entry);
    if (entry.movedLink) {
      throw this.#refuse(
        "PATCH_INVALID",
        "patch",
        entry,
        "the same patch moved a link there; patch it afterwards",
      );
    }
    return entry;
  }

  async #find(path: string): Promise<Entry> {
    // What is on disk still leads through a link that the patch has taken away.
    const taken = this.#linksTaken ? this.#entries.get(await this.#ownPath(path)) : undefined;
    if (taken) return taken;
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
    return absent(path, realPath);
  }

  #refuse(
    code: "FILE_EXISTS" | "FILE_MISSING" | "FILE_BINARY" | "PATCH_INVALID",
    verb: string,
    entry: Entry,
    reason: string,
  ): MoorageError {
    return new MoorageError(code, `Cannot ${verb} ${JSON.stringify(entry.path)}: ${reason}`, {
      details: { path: entry.path },
    });
  }
}

function absent(path: string, realPath: string): Entry {
  return { path, realPath, original: null, originalHash: null, content: null, touched: false };
}
