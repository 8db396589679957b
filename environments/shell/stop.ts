/**
 * The end of a session or an environment, of which every call hears that runs in it. To listen to an `AbortSignal` and to
 * leave it again takes some hundredths of a small command.
 */
export class Stop {
  readonly #listeners = new Set<() => void>();
  #stopped = false;

  get stopped(): boolean {
    return this.#stopped;
  }

  /** Idempotent. */
  stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    for (const listener of this.#listeners) listener();
    this.#listeners.clear();
  }

  /** Calls once when it is stopped, at once when it is already. @returns a way to take that back */
  onStop(listener: () => void): () => void {
    if (this.#stopped) listener();
    else this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }
}
