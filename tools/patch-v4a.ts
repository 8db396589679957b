/** The V4A patch text, parsed: which files it adds, deletes, updates and moves, and the chunks of each update. */
import { MoorageError } from "../src/errors.ts";
import type { LineEdit } from "./patch-lines.ts";

export interface PatchChunk {
  /** Lines after which the chunk is looked for, outermost first. */
  readonly contexts: readonly string[];
  readonly edits: readonly LineEdit[];
  /** Tried at the end of the file first. */
  readonly endOfFile: boolean;
  /** Where a unified diff says that the chunk begins, 1-based; V4A text has no numbers. */
  readonly statedLine?: number;
}

export type PatchOperation =
  | { readonly kind: "add"; readonly path: string; readonly content: string }
  | { readonly kind: "delete"; readonly path: string; readonly chunks?: readonly PatchChunk[] }
  | {
      readonly kind: "update";
      readonly path: string;
      readonly moveTo?: string;
      readonly chunks: readonly PatchChunk[];
      /** Chunks must match at one place only, or at the stated line. */
      readonly unique?: boolean;
    };

const BEGIN = "*** Begin Patch";
const END = "*** End Patch";
const END_OF_FILE = "*** End of File";
const UNIFIED_HEADER = /^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@/;

/** Whether `text` is meant as V4A, whatever its faults. */
export function isV4a(text: string): boolean {
  return /^\s*\*\*\* (Begin Patch|(Add|Update|Delete|Move) File:)/m.test(text);
}

/** @throws {MoorageError} PATCH_INVALID with the number of the line in the patch text */
export function parseV4a(text: string): readonly PatchOperation[] {
  return new Parser(patchLines(text)).parse();
}

/** Lines of the patch, without a heredoc around it, and without `\r` when every line has one. */
function patchLines(text: string): readonly string[] {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  const carriage = lines.length > 1 && lines.slice(0, -1).every((line) => line.endsWith("\r"));
  return carriage ? lines.map((line) => line.replace(/\r$/, "")) : lines;
}

class Parser {
  readonly #lines: readonly string[];
  #at = 0;

  constructor(lines: readonly string[]) {
    this.#lines = lines;
  }

  parse(): readonly PatchOperation[] {
    this.#skipBlank();
    const heredoc = /^\s*(?:apply_patch\s+)?<<-?\s*(['"]?)(\w+)\1\s*$/.exec(this.#line)?.[2];
    if (heredoc) this.#at += 1;
    this.#skipBlank();
    if (this.#header() !== BEGIN) throw this.#fault(`expected "${BEGIN}"`);
    this.#at += 1;
    const operations: PatchOperation[] = [];
    for (this.#skipBlank(); this.#header() !== END; this.#skipBlank()) {
      if (this.#done) throw this.#fault(`the text ends without "${END}"`);
      operations.push(this.#operation());
    }
    this.#at += 1;
    this.#skipBlank();
    if (heredoc && this.#header() === heredoc) this.#at += 1;
    this.#skipBlank();
    if (!this.#done) throw this.#fault(`text follows "${END}"`);
    if (operations.length === 0) throw this.#fault("the patch holds no Add, Update or Delete");
    return operations;
  }

  get #line(): string {
    return this.#lines[this.#at] ?? "";
  }

  #header(): string {
    return this.#line.trim();
  }

  get #done(): boolean {
    return this.#at >= this.#lines.length;
  }

  #skipBlank(): void {
    while (!this.#done && this.#header() === "") this.#at += 1;
  }

  #operation(): PatchOperation {
    const match = /^\*\*\* (Add|Delete|Update|Move) File:(.*)$/.exec(this.#header());
    if (!match) throw this.#fault('expected "*** Add File:", "*** Update File:" or "*** Delete File:"');
    const [, kind, rest = ""] = match;
    const path = rest.trim();
    if (path === "") throw this.#fault("the path is empty");
    if (kind === "Add") return this.#add(path);
    if (kind === "Update") return this.#update(path);
    if (kind === "Move") return this.#move(path);
    this.#at += 1;
    return { kind: "delete", path };
  }

  #add(path: string): PatchOperation {
    this.#at += 1;
    const content: string[] = [];
    for (; !this.#done && this.#line.startsWith("+"); this.#at += 1) content.push(this.#line.slice(1));
    if (content.length === 0) throw this.#fault('an added file needs lines that begin with "+"');
    return { kind: "add", path, content: `${content.join("\n")}\n` };
  }

  /** `*** Move File: a -> b`, a form that some models write. */
  #move(text: string): PatchOperation {
    const [from = "", to = ""] = text.split(" -> ").map((part) => part.trim());
    if (from === "" || to === "") throw this.#fault("a move needs a source and a target");
    this.#at += 1;
    return { kind: "update", path: from, moveTo: to, chunks: [] };
  }

  #update(path: string): PatchOperation {
    const start = this.#at;
    this.#at += 1;
    this.#skipBlank();
    const move = /^\*\*\* Move to:(.*)$/.exec(this.#header());
    const moveTo = move?.[1]?.trim();
    if (moveTo === "") throw this.#fault("the target of the move is empty");
    if (move) this.#at += 1;
    const chunks: PatchChunk[] = [];
    for (this.#skipBlank(); !this.#done && !this.#atHeader(); this.#skipBlank()) {
      chunks.push(this.#chunk(chunks.length === 0));
    }
    if (chunks.length === 0 && moveTo === undefined) {
      this.#at = start;
      throw this.#fault("the update has no hunk");
    }
    return { kind: "update", path, chunks, ...(moveTo !== undefined && { moveTo }) };
  }

  #atHeader(): boolean {
    return this.#line.startsWith("***") && this.#header() !== END_OF_FILE;
  }

  #chunk(first: boolean): PatchChunk {
    const contexts: string[] = [];
    const start = this.#at;
    for (; /^@@(\s|$)/.test(this.#line); this.#at += 1) {
      const context = UNIFIED_HEADER.test(this.#line) ? "" : this.#line.slice(3).trimEnd();
      if (context !== "") contexts.push(context);
    }
    if (this.#at === start && !first)
      throw this.#fault('expected "@@", "***" or a line that begins with " ", "+" or "-"');
    const edits: LineEdit[] = [];
    let blanks = 0;
    for (; !this.#done && !/^(@@(\s|$)|\*\*\*)/.test(this.#line); this.#at += 1) {
      const line = this.#line;
      const kind = EDIT_KINDS[line.charAt(0)];
      if (kind === undefined) throw this.#fault('expected a line that begins with " ", "+" or "-"');
      blanks = line === "" || line === "\r" ? blanks + 1 : 0;
      edits.push({ kind, text: line.slice(1) });
    }
    // Empty lines before the next header part the chunks; they are no context.
    edits.splice(edits.length - blanks, blanks);
    const endOfFile = this.#header() === END_OF_FILE;
    if (endOfFile) this.#at += 1;
    if (edits.length === 0) throw this.#fault("the hunk has no lines");
    return { contexts, edits, endOfFile };
  }

  #fault(reason: string): MoorageError {
    const shown = this.#done
      ? "the end"
      : `line ${this.#at + 1} (${JSON.stringify(this.#line.slice(0, 120))})`;
    return new MoorageError("PATCH_INVALID", `Cannot read the patch: at ${shown}: ${reason}`, {
      details: { line: this.#at + 1 },
    });
  }
}

const EDIT_KINDS: Readonly<Record<string, LineEdit["kind"]>> = {
  " ": "keep",
  "+": "add",
  "-": "remove",
  "": "keep",
  "\r": "keep",
};
