/** Applying the chunks of one update to the text of one file. */
import { MoorageError } from "../src/errors.ts";
import { fitIndentation } from "./patch-indent.ts";
import { editLines, joinLines, type Line, type LineEdit, splitLines } from "./patch-lines.ts";
import { findLines, LINE_KEYS, type Rung } from "./patch-match.ts";
import type { PatchChunk } from "./patch-v4a.ts";

export interface ChunkResult {
  readonly text: string;
  /** What a reader should know: a lenient match, one place of several. */
  readonly notes: readonly string[];
}

const RUNGS = ["exact", "trailing-whitespace", "indentation", "unicode"] as const;

/**
 * @param path for messages
 * @param unique whether a chunk that fits several places is refused, unless it is at its stated line
 * @throws {MoorageError} PATCH_MISMATCH, PATCH_AMBIGUOUS, naming the hunk and its first line
 */
export function applyChunks(
  path: string,
  text: string,
  chunks: readonly PatchChunk[],
  unique: boolean,
): ChunkResult {
  let lines = splitLines(text);
  let cursor = 0;
  const notes: string[] = [];
  chunks.forEach((chunk, index) => {
    const hunk = new Hunk(path, index + 1, chunk);
    const start = hunk.skipContexts(lines, cursor);
    const place = hunk.find(lines, start, unique);
    const before = lines.length;
    lines = editLines(lines, place.at, place.edits);
    cursor = place.at + chunk.edits.filter(({ kind }) => kind !== "add").length + lines.length - before;
    notes.push(...place.notes);
  });
  return { text: joinLines(lines), notes };
}

interface HunkPlace {
  readonly at: number;
  readonly edits: readonly LineEdit[];
  readonly notes: readonly string[];
}

class Hunk {
  readonly #path: string;
  readonly #number: number;
  readonly #chunk: PatchChunk;
  readonly #old: readonly string[];

  constructor(path: string, number: number, chunk: PatchChunk) {
    this.#path = path;
    this.#number = number;
    this.#chunk = chunk;
    this.#old = chunk.edits.filter(({ kind }) => kind !== "add").map(({ text }) => text);
  }

  /** Index after the last context line; contexts that stand in the file are not searched backwards. */
  skipContexts(lines: readonly Line[], cursor: number): number {
    let at = cursor;
    for (const context of this.#chunk.contexts) {
      const found = RUNGS.map((rung) => findLines(lines, [context], LINE_KEYS[rung], at)[0]).find(
        (place) => place !== undefined,
      );
      if (found === undefined)
        throw this.#mismatch(`the line after "@@", ${quoteLine(context)}, is not there`);
      at = found + 1;
    }
    return at;
  }

  find(lines: readonly Line[], from: number, unique: boolean): HunkPlace {
    if (this.#old.length === 0)
      return { at: this.#insertionPoint(lines, from), edits: this.#chunk.edits, notes: [] };
    for (const rung of RUNGS) {
      const places = findLines(lines, this.#old, LINE_KEYS[rung], from);
      const at = this.#choose(places, lines.length, unique, rung);
      if (at === undefined) continue;
      const edits =
        rung === "indentation" || rung === "unicode"
          ? fitIndentation(lines, at, this.#chunk.edits)
          : this.#chunk.edits;
      if (!edits)
        throw this.#mismatch(
          `it matches at L${at + 1} only when indentation is ignored, in a way that cannot be carried over`,
        );
      if (rung === "unicode") this.#refuseFlattening(lines, at, edits);
      return { at, edits, notes: this.#notes(rung, places, at) };
    }
    throw this.#mismatch(this.#madeAlready(lines) ? "its new lines are there already" : "it does not match");
  }

  #insertionPoint(lines: readonly Line[], from: number): number {
    if (this.#chunk.contexts.length > 0) return from;
    const { statedLine } = this.#chunk;
    return statedLine === undefined ? lines.length : Math.min(statedLine, lines.length);
  }

  #choose(places: readonly number[], length: number, unique: boolean, rung: Rung): number | undefined {
    const atEnd = places.find((place) => place + this.#old.length === length);
    if (this.#chunk.endOfFile && atEnd !== undefined) return atEnd;
    const stated = places.find((place) => place + 1 === this.#chunk.statedLine);
    if (unique && stated !== undefined) return stated;
    const weak = rung === "indentation" || rung === "unicode";
    if (places.length > 1 && (unique || weak)) {
      const shown = places
        .slice(0, 20)
        .map((place) => `L${place + 1}`)
        .join(", ");
      throw this.#error("PATCH_AMBIGUOUS", `it matches ${places.length} places: ${shown}`);
    }
    return places[0];
  }

  /** Lines that were matched by their plain form and are rewritten would lose their own characters. */
  #refuseFlattening(lines: readonly Line[], start: number, edits: readonly LineEdit[]): void {
    let at = start;
    for (const { kind, text } of edits) {
      if (kind === "add") continue;
      const has = lines[at++]?.text ?? "";
      if (kind === "remove" && LINE_KEYS.indentation(has) !== LINE_KEYS.indentation(text)) {
        throw this.#mismatch(`L${at} differs from its removed line in quotes, dashes or blanks`);
      }
    }
  }

  #notes(rung: Rung, places: readonly number[], at: number): readonly string[] {
    const notes: string[] = [];
    const where = `Hunk ${this.#number} of ${JSON.stringify(this.#path)}`;
    if (rung !== "exact") notes.push(`${where} matched at L${at + 1} by ${rung}, not exactly`);
    if (places.length > 1 && !this.#chunk.endOfFile && this.#chunk.statedLine === undefined) {
      notes.push(`${where} fits ${places.length} places; the first, L${at + 1}, was changed`);
    }
    return notes;
  }

  #madeAlready(lines: readonly Line[]): boolean {
    const now = this.#chunk.edits.filter(({ kind }) => kind !== "remove").map(({ text }) => text);
    return now.some((text) => text.trim() !== "") && findLines(lines, now, LINE_KEYS.exact).length > 0;
  }

  #mismatch(reason: string): MoorageError {
    return this.#error("PATCH_MISMATCH", reason);
  }

  #error(code: "PATCH_MISMATCH" | "PATCH_AMBIGUOUS", reason: string): MoorageError {
    const first = this.#chunk.edits[0]?.text ?? "";
    const where = `hunk ${this.#number}, which begins ${quoteLine(first)}`;
    return new MoorageError(code, `Cannot patch ${JSON.stringify(this.#path)}: ${where}: ${reason}`, {
      details: { path: this.#path, hunk: this.#number },
      ...(code === "PATCH_AMBIGUOUS" && {
        suggestion: "Add context lines, or a line after @@, until the hunk fits one place.",
      }),
    });
  }
}

function quoteLine(text: string): string {
  return JSON.stringify(text.length > 120 ? `${text.slice(0, 120)}…` : text);
}
