/** Reads the tool calls of a chat model in the forms in which people keep them. */
import { z } from "zod";
import type { OpenAiToolCall } from "../call.ts";
import type { MoorageError } from "../errors.ts";
import { badUsage } from "./failure.ts";

const toolCall = z.object({
  id: z.string(),
  type: z.literal("function").default("function"),
  function: z.object({
    name: z.string(),
    /** Text, as models send it; some servers send the object itself. */
    arguments: z.union([
      z.string(),
      z.record(z.string(), z.unknown()).transform((value) => JSON.stringify(value)),
      // Of a call without arguments, where a server leaves them out.
      z.null().transform(() => ""),
    ]),
  }),
});

const answerable = z.object({ id: z.string() });

/** A message of another API has its calls among its contents. */
const otherForm = z.object({ content: z.array(z.object({ type: z.string() })) });
const OTHER_TYPES = /^tool[-_](?:use|call)$/;

/** An entry that is no call, but has an id by which it can be answered. */
export interface UnreadableCall {
  readonly id: string;
  readonly refusal: MoorageError;
}

/**
 * Reads tool calls: one, an assistant message with some, an array of either, or one of these per line. Messages
 * without tool calls have none.
 *
 * @throws {MoorageError} INVALID_ARGUMENTS naming the place of text that is no JSON and of an entry without an id
 */
export function parseCalls(text: string): readonly (OpenAiToolCall | UnreadableCall)[] {
  const whole = parseJson(text);
  if (whole !== undefined) return callsOf(whole, "");
  return text.split("\n").flatMap((line, index) => {
    if (line.trim() === "") return [];
    const value = parseJson(line);
    if (value === undefined) {
      throw badUsage(`Cannot read tool calls: line ${index + 1} is no JSON`, FORMS);
    }
    return callsOf(value, `line ${index + 1}: `);
  });
}

const FORMS =
  "Give an assistant message with tool_calls, an array of tool calls or of messages, or one of those per line.";

function callsOf(value: unknown, place: string): readonly (OpenAiToolCall | UnreadableCall)[] {
  if (Array.isArray(value)) return value.flatMap((item, index) => callsOf(item, `${place}[${index}] `));
  if (typeof value === "object" && value !== null) {
    if ("tool_calls" in value) return callsOf(value.tool_calls ?? [], `${place}tool_calls`);
    if ("role" in value) {
      const foreign = otherForm.safeParse(value).data?.content.find(({ type }) => OTHER_TYPES.test(type));
      if (foreign === undefined) return [];
      throw badUsage(
        `Cannot read tool calls${place && ` at ${place.trim()}`}: ${foreign.type} is another API's form`,
        FORMS,
      );
    }
  }
  const parsed = toolCall.safeParse(value);
  if (parsed.success) return [parsed.data];
  const [issue] = parsed.error.issues;
  const where = [place.trim(), issue?.path.join(".")].filter(Boolean).join(" ");
  const refusal = badUsage(
    `Cannot read tool calls${where === "" ? "" : ` at ${where}`}: ${issue?.message}`,
    FORMS,
  );
  const named = answerable.safeParse(value);
  if (named.success) return [{ id: named.data.id, refusal }];
  throw refusal;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // Undefined is no JSON value, so it tells the caller.
    return undefined;
  }
}
