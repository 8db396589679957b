/**
 * What happens in the runtime, as typed events. Surfaces show them, and later stages (journal, telemetry) record
 * them; nothing in the runtime waits for a listener.
 */
import type { ErrorReport } from "./errors.ts";

export type MoorageEvent =
  | {
      readonly type: "call-started";
      readonly callId: string;
      readonly tool: string;
      readonly environment: string | null;
      readonly caller: string;
    }
  | {
      readonly type: "call-ended";
      readonly callId: string;
      readonly tool: string;
      readonly environment: string | null;
      readonly caller: string;
      readonly durationMs: number;
      /** Bytes of the text that the model gets. */
      readonly resultBytes: number;
      /** Null when the call succeeded. */
      readonly error: ErrorReport | null;
    }
  /** A handler did not end after its abort and was left to itself; its late answer is dropped. */
  | { readonly type: "handler-abandoned"; readonly callId: string; readonly tool: string }
  /** An environment or a tool stopped working for good; once per outage. */
  | { readonly type: "availability-lost"; readonly subject: string; readonly reason: string }
  /** It works again; once per outage. */
  | { readonly type: "availability-restored"; readonly subject: string }
  /** An availability check threw something that is no answer: a fault in the check. */
  | { readonly type: "probe-failed"; readonly subject: string; readonly error: ErrorReport }
  /** The list of tools that a model sees is another one now. */
  | { readonly type: "tools-changed" }
  /** A tool module could not be read or loaded; the others were. */
  | { readonly type: "tool-module-failed"; readonly path: string; readonly error: ErrorReport }
  /** A slow step of an environment: an image pull, a container start. */
  | {
      readonly type: "environment-progress";
      readonly environment: string;
      readonly message: string;
      readonly fraction?: number;
    };

export type EventListener = (event: MoorageEvent) => void;

/** Hands events to listeners. A listener that throws is reported as a process warning and disturbs nobody. */
export class EventHub {
  readonly #listeners = new Set<EventListener>();

  /** @returns a function that takes the listener off; calling it twice is fine */
  listen(listener: EventListener): () => void {
    // A wrapper of its own, so that one function listening twice is two listeners.
    const entry: EventListener = (event) => listener(event);
    this.#listeners.add(entry);
    return () => void this.#listeners.delete(entry);
  }

  get size(): number {
    return this.#listeners.size;
  }

  emit(event: MoorageEvent): void {
    for (const listener of this.#listeners) {
      try {
        listener(event);
      } catch (error) {
        const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
        process.emitWarning(`A listener for "${event.type}" events threw: ${text}`, "MoorageWarning");
      }
    }
  }
}
