/** A queue of one place between a source that pushes and a reader that pulls, so that the source waits. */
export class Channel implements AsyncIterable<Buffer> {
  #chunk: Buffer | null = null;
  #taken: (() => void) | null = null;
  #arrived: (() => void) | null = null;
  #closed = false;
  #failure: unknown = null;

  /** Resolves when the chunk was taken, or nobody reads any more. */
  push(chunk: Buffer): Promise<void> {
    if (this.#closed || chunk.length === 0) return Promise.resolve();
    this.#chunk = chunk;
    this.#wake();
    return new Promise((resolve) => {
      this.#taken = resolve;
    });
  }

  /** Ends the reader's sequence, with an error if one is given; a source that waits goes on. */
  close(failure: unknown = null): void {
    this.#closed = true;
    this.#failure ??= failure;
    this.#taken?.();
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer> {
    while (true) {
      if (this.#chunk !== null) {
        const chunk = this.#chunk;
        this.#chunk = null;
        const taken = this.#taken;
        this.#taken = null;
        yield chunk;
        taken?.();
      } else if (this.#closed) {
        if (this.#failure !== null) throw this.#failure;
        return;
      } else {
        await new Promise<void>((resolve) => {
          this.#arrived = resolve;
        });
      }
    }
  }

  #wake(): void {
    this.#arrived?.();
    this.#arrived = null;
  }
}
