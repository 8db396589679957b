/**
 * A command may be silent for hours, and so is a connection that broke without a word. While nothing comes, the server is
 * asked what it knows of the command.
 */

/** What a server says of a command; `gone` when it does not know it any more. */
export type CommandState = "running" | "ended" | "gone";

export interface SilenceOptions {
  /** Silence after which the server is asked, and asked again, milliseconds. */
  readonly everyMs: number;
  /** @throws when the server cannot be asked */
  readonly ask: () => Promise<CommandState>;
  /** The rest of the output will not come. */
  readonly onLost: (why: string) => void;
}

/** Unanswered questions before the server counts as lost. */
const MISSES = 2;

/** Told of what comes, and of what is waited for: a listener that takes its time is no silence of the server's. */
export class SilenceWatch {
  readonly #options: SilenceOptions;
  #timer: NodeJS.Timeout | undefined;
  /** Whether something was heard, or nothing was waited for, since the last look. */
  #isQuiet = true;
  #isWaiting = false;
  #isOver = false;
  #misses = 0;
  /** Whether its end was told at the last look, so that the rest of its output should have come. */
  #hasEnded = false;

  constructor(options: SilenceOptions) {
    this.#options = options;
    this.#arm();
  }

  /** Something is waited for from here on. */
  waits(): void {
    this.#isWaiting = true;
  }

  /** Something came. */
  hears(): void {
    this.#isWaiting = false;
    this.#isQuiet = false;
  }

  close(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
  }

  #arm(): void {
    if (!this.#isOver) this.#timer = setTimeout(() => void this.#look(), this.#options.everyMs);
  }

  async #look(): Promise<void> {
    const isSilent = this.#isQuiet && this.#isWaiting;
    this.#isQuiet = true;
    if (isSilent) await this.#question();
    else {
      this.#misses = 0;
      this.#hasEnded = false;
    }
    this.#arm();
  }

  async #question(): Promise<void> {
    const { ask, onLost } = this.#options;
    let state: CommandState | null = null;
    try {
      state = await ask();
      this.#misses = 0;
    } catch {
      this.#misses += 1;
    }
    // What came meanwhile is better than any answer.
    if (this.#isOver || !this.#isQuiet) return;
    if (this.#misses >= MISSES) onLost("the server answers no more");
    else if (state === "gone") onLost("the server knows nothing of the command any more");
    else if (state === "ended" && this.#hasEnded)
      onLost("the command ended, and its last words did not come");
    this.#hasEnded = state === "ended";
  }
}
