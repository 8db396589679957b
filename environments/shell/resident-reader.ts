/**
 * Takes apart what a resident shell's two streams bring of one call: the command's bytes go on, what frames tell is
 * kept.
 */
import { type Frame, type FrameTaker, handOn, type Splitters } from "./frames.ts";
import { pidList } from "./greeting.ts";
import { FRAME } from "./phrases.ts";
import { droppedScript } from "./ready.ts";
import { afterwards, type CallText, wire } from "./script.ts";
import type { CallRequest } from "./worker.ts";

type StreamName = "stdout" | "stderr";

export interface ResidentReaderOptions extends Pick<CallRequest, "stdin" | "onData"> {
  readonly nonce: string;
  readonly secret: string;
  readonly text: Pick<CallText, "isShort" | "isOneStream">;
  readonly splitters: Splitters;
  /** Streams on which a subshell has told that it waits for the call. */
  readonly waits: Iterable<StreamName>;
  /** Writes to the shell; text has one byte a character. */
  readonly write: (data: string | Uint8Array) => void;
  /** The exit code has come, and the call's end is near. */
  readonly onExitCode: () => void;
  /** All that belongs to the call has come. */
  readonly onEnd: () => void;
}

export class ResidentReader implements FrameTaker {
  /** The state after the call, as text; null when none was told. */
  dump: string | null = null;
  /** What the session keeps was brought back. */
  isRestored = false;
  workdirProblem: "missing" | "kernel" | null = null;
  movedTo: string | null = null;
  exitCode: number | null = null;
  /** All that the reaper had adopted by the call's end. */
  orphans: readonly number[] = [];
  /** The shell answered to this call, so it has read all of it. */
  hasAnswered = false;
  /** The subshell did, before its end. */
  hasStarted = false;
  /** The subshell told that it cannot run the call. */
  #isUnready = false;
  /** Whether the shell was asked if it had read the call. */
  #isAsked = false;
  readonly #options: ResidentReaderOptions;
  /** Streams that are still to be ended. */
  readonly #open: Set<StreamName>;
  /** Bytes before are the last ones of what an earlier call left behind and the end of which was already met. */
  readonly #begun: Set<StreamName>;

  constructor(options: ResidentReaderOptions) {
    const { text, waits } = options;
    this.#options = options;
    this.#open = new Set(text.isOneStream ? ["stdout"] : ["stdout", "stderr"]);
    this.#begun = new Set(text.isShort ? waits : []);
  }

  get isComplete(): boolean {
    return this.#open.size === 0;
  }

  /** @returns a promise that holds the stream back, where whoever takes the command's bytes gave one */
  push(stream: StreamName, chunk: Buffer): void | Promise<void> {
    return handOn(this.#options.splitters, stream, chunk, this);
  }

  /** Hands on what was held back as the start of a frame, when nothing follows. */
  flush(): void {
    for (const stream of ["stdout", "stderr"] as const) {
      const rest = this.#options.splitters[stream].flush();
      if (rest.length > 0) void this.onBytes(stream, rest);
    }
  }

  onBytes(stream: StreamName, bytes: Buffer): void | Promise<void> {
    if (this.#begun.has(stream) && this.#open.has(stream)) return this.#options.onData(stream, bytes);
  }

  onFrame(stream: StreamName, { kind, fields }: Frame): void {
    const { nonce, secret, text, stdin, write, onExitCode } = this.#options;
    const [first = "", exitCode = "", orphans = ""] = fields;
    if (kind === FRAME.ready) {
      if (text.isShort) this.#begun.add(stream);
      return;
    }
    if (text.isShort && kind === FRAME.end) {
      // The shell's word alone: the subshell was ended, in its call or before it had read it.
      if (first !== secret || !this.#open.has(stream)) return;
      if (stream === "stderr") {
        this.#close(stream);
        return;
      }
      this.exitCode = Number(exitCode);
      this.orphans = pidList(orphans);
      this.#isAsked = true;
      write(wire("bash", droppedScript(nonce)));
      return;
    }
    if (kind === FRAME.dropped && !this.#isAsked) return;
    this.hasAnswered = true;
    if (kind === FRAME.dropped) {
      this.hasStarted = first === "";
      this.isRestored = first === "" && !this.#isUnready;
      this.#close(stream);
      return;
    }
    if (kind !== FRAME.end) this.hasStarted = true;
    if (kind === FRAME.begun) {
      this.isRestored = true;
      this.#begun.add(stream);
    } else if (kind === FRAME.stdin && stdin) {
      write(stdin);
      write(afterwards(nonce));
    } else if (kind === FRAME.workdir) this.workdirProblem = first === "kernel" ? "kernel" : "missing";
    else if (kind === FRAME.moved) this.movedTo = first;
    else if (kind === FRAME.unready) this.#isUnready = true;
    else if (kind === FRAME.state) this.dump = first;
    // The shell tells the end once more where the subshell has told it.
    else if ((kind === FRAME.end || kind === FRAME.told) && first === secret && this.#open.has(stream)) {
      if (kind === FRAME.told) this.isRestored = true;
      if (stream === "stdout") {
        this.exitCode = Number(exitCode);
        this.orphans = pidList(orphans);
        onExitCode();
      }
      this.#close(stream);
    }
  }

  #close(stream: StreamName): void {
    this.#open.delete(stream);
    if (this.isComplete) this.#options.onEnd();
  }
}
