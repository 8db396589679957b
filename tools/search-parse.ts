/** Readers of what the search script prints, chunk by chunk, so that any amount of output passes in flat memory. */

export interface FoundLine {
  readonly path: string;
  readonly line: number;
  readonly text: string;
  readonly isMatch: boolean;
  /** Where the match begins in `text`, when the program tells. */
  readonly column?: number;
}

export interface SearchSink {
  line(found: FoundLine): void;
  name(path: string): void;
}

/** A record longer than this is passed over, bytes. */
const RECORD_MAX_BYTES = 64 * 1024 * 1024;

/** Takes the script's stdout, beginning with its format line. */
export class SearchReader {
  readonly #sink: SearchSink;
  #format: string | null = null;
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  #path: string | null = null;

  constructor(sink: SearchSink) {
    this.#sink = sink;
  }

  /** Null until the first line is there. */
  get format(): string | null {
    return this.#format;
  }

  push(chunk: Buffer): void {
    let rest = chunk;
    while (rest.length > 0) {
      const end = rest.indexOf(this.#delimiter());
      if (end < 0) {
        this.#keep(rest);
        return;
      }
      this.#keep(rest.subarray(0, end));
      rest = rest.subarray(end + 1);
      this.#record(Buffer.concat(this.#pending), this.#pendingBytes > RECORD_MAX_BYTES);
      this.#pending = [];
      this.#pendingBytes = 0;
    }
  }

  #keep(bytes: Buffer): void {
    this.#pendingBytes += bytes.length;
    if (this.#pendingBytes <= RECORD_MAX_BYTES) this.#pending.push(Buffer.from(bytes));
    else this.#pending = [];
  }

  /** The byte that ends the next record. */
  #delimiter(): number {
    if (this.#format?.endsWith("names")) return 0;
    if (this.#format === "null" && this.#path === null) return 0;
    return 10;
  }

  #record(bytes: Buffer, dropped: boolean): void {
    if (this.#format === null) this.#format = bytes.toString();
    else if (this.#format.endsWith("names")) this.#sink.name(bytes.toString());
    else if (this.#format === "rg") {
      if (!dropped) this.#event(bytes);
    } else if (this.#path === null) this.#path = bytes.toString().replace(/^(--\n)+/, "");
    else {
      this.#grepLine(this.#path, bytes.toString());
      this.#path = null;
    }
  }

  #event(bytes: Buffer): void {
    // The program is known and its output is JSON by its own promise; anything else is passed over.
    const event = JSON.parse(bytes.toString()) as RipgrepEvent;
    if (event.type !== "match" && event.type !== "context") return;
    const { path, lines, line_number, submatches } = event.data;
    const raw = lines ? ripgrepBytes(lines) : Buffer.alloc(0);
    const start = submatches?.[0]?.start;
    this.#sink.line({
      path: path ? ripgrepBytes(path).toString() : "",
      line: line_number ?? 0,
      text: endless(raw.toString()),
      isMatch: event.type === "match",
      ...(start !== undefined && { column: raw.subarray(0, start).toString().length }),
    });
  }

  #grepLine(path: string, text: string): void {
    const match = /^(\d+)([:-])/.exec(text);
    if (!match) return;
    this.#sink.line({
      path,
      line: Number(match[1]),
      text: endless(text.slice(match[0].length)),
      isMatch: match[2] === ":",
    });
  }
}

interface RipgrepText {
  readonly text?: string;
  readonly bytes?: string;
}

interface RipgrepEvent {
  readonly type: string;
  readonly data: {
    readonly path?: RipgrepText;
    readonly lines?: RipgrepText;
    readonly line_number?: number;
    readonly submatches?: readonly { readonly start: number }[];
  };
}

function ripgrepBytes(text: RipgrepText): Buffer {
  return text.bytes === undefined ? Buffer.from(text.text ?? "") : Buffer.from(text.bytes, "base64");
}

function endless(text: string): string {
  return text.replace(/\r?\n?$/, "");
}
