/** What an engine says while it builds, imports or pulls: one JSON object per line. */
import { createInterface } from "node:readline";

export interface EngineEvent {
  readonly status: string;
  /** Layer or image the status is about. */
  readonly id: string;
  /** Text of a build step. */
  readonly stream: string;
  /** Id of a finished build. */
  readonly builtId: string;
}

/**
 * Reads the events of an engine's answer.
 *
 * @throws {Error} with the engine's words when an event tells of a failure: the answer's own status is 200 by then
 */
export async function* engineEvents(answer: NodeJS.ReadableStream): AsyncGenerator<EngineEvent> {
  for await (const line of createInterface({ input: answer, crlfDelay: Infinity })) {
    if (line.trim() === "") continue;
    // The engine's API promises an object per line; every field is checked before use.
    const event = JSON.parse(line) as Record<string, unknown>;
    const failure = text(event.error) || text(field(event.errorDetail, "message"));
    if (failure) throw new Error(failure.trim());
    yield {
      status: text(event.status),
      id: text(event.id),
      stream: text(event.stream),
      builtId: text(field(event.aux, "ID")),
    };
  }
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function field(value: unknown, key: string): unknown {
  if (typeof value !== "object" || value === null) return undefined;
  // Any object may be read by a string key.
  return (value as Record<string, unknown>)[key];
}
