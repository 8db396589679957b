/** Shell sessions by environment and caller, so that each caller has a cwd and variables of its own. */
import type { BaseEnvironment, ShellSession } from "../environments/base.ts";

/** Sessions of one runtime; opened on first use. */
export class Sessions {
  readonly #open = new Map<
    string,
    { readonly opening: Promise<ShellSession>; session: ShellSession | null }
  >();

  /** The caller's session in the environment. Concurrent askers share one; a failed opening can be tried again. */
  async get(environment: BaseEnvironment, caller: string): Promise<ShellSession> {
    const key = keyOf(environment, caller);
    const present = this.#open.get(key);
    if (present) return present.opening;
    const entry = { opening: environment.openSession(), session: null as ShellSession | null };
    this.#open.set(key, entry);
    try {
      entry.session = await entry.opening;
      return entry.session;
    } catch (error) {
      if (this.#open.get(key) === entry) this.#open.delete(key);
      throw error;
    }
  }

  /** cwd of the caller's session, or the workspace before there is one. */
  cwd(environment: BaseEnvironment, caller: string): string {
    return this.#open.get(keyOf(environment, caller))?.session?.cwd ?? environment.workspace;
  }

  /** Forgets a session that was closed elsewhere, so that the next asker gets a new one. */
  drop(environment: BaseEnvironment, caller: string): void {
    this.#open.delete(keyOf(environment, caller));
  }

  /** Closes the sessions of one caller, or of all. @throws what the first session that failed to close threw */
  async close(caller?: string): Promise<void> {
    const closing = [...this.#open].filter(([key]) => caller === undefined || key.endsWith(`\0${caller}`));
    for (const [key] of closing) this.#open.delete(key);
    const outcomes = await Promise.allSettled(
      // One that never opened has nothing to close.
      closing.map(([, { opening }]) =>
        opening.then(
          (session) => session.close(),
          () => undefined,
        ),
      ),
    );
    for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
  }
}

function keyOf(environment: BaseEnvironment, caller: string): string {
  return `${environment.id}\0${caller}`;
}
