/** From what a model sent to arguments that a handler can trust: parse, coerce, validate. */
import type { z } from "zod";
import { coerce } from "./coerce.ts";
import { MoorageError } from "./errors.ts";
import { didYouMean } from "./nearest.ts";
import type { RegisteredTool } from "./registry.ts";

type Arguments = Readonly<Record<string, unknown>>;

/** A received value is quoted in a message up to this length. */
const QUOTED_MAX_CHARS = 40;

/**
 * The object that a model sent, as text or as a value; nothing at all is an empty object.
 *
 * @throws {MoorageError} INVALID_ARGUMENTS when it is no JSON object
 */
export function parseArguments(raw: unknown, tool: string): Arguments {
  let value = raw;
  // Twice, because some models send JSON text inside a JSON string.
  for (let round = 0; round < 2 && typeof value === "string"; round += 1) {
    if (value.trim() === "") return {};
    value = parseJson(value, tool);
  }
  if (value === undefined || value === null) return {};
  if (typeof value === "object" && !Array.isArray(value)) return { ...value };
  throw new MoorageError(
    "INVALID_ARGUMENTS",
    `Cannot call "${tool}": expected a JSON object of arguments, received ${describe(value)}`,
  );
}

/**
 * Coerces and validates the arguments of a call.
 *
 * @throws {MoorageError} INVALID_ARGUMENTS with path and expectation of everything that is wrong
 */
export async function checkArguments(registered: RegisteredTool, given: Arguments): Promise<Arguments> {
  const value = coerce(given, registered.inputSchema);
  const parsed = await registered.parameters.safeParseAsync(value);
  if (parsed.success) return parsed.data;
  const known = Object.keys(registered.parameters.shape);
  const issues = parsed.error.issues.flatMap((issue) => explain(issue, value, known));
  throw new MoorageError(
    "INVALID_ARGUMENTS",
    `Cannot call "${registered.tool.name}": ${issues.map(({ message }) => message).join("; ")}`,
    { details: { issues } },
  );
}

function parseJson(text: string, tool: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new MoorageError(
      "INVALID_ARGUMENTS",
      `Cannot call "${tool}": the arguments are not JSON: ${reason}`,
      {
        cause: error,
        suggestion: "Send the arguments as one JSON object and call again.",
      },
    );
  }
}

interface Explained {
  readonly path: string;
  readonly message: string;
}

function explain(issue: z.core.$ZodIssue, root: unknown, known: readonly string[]): readonly Explained[] {
  const path = pathText(issue.path);
  if (issue.code === "unrecognized_keys") {
    return issue.keys.map((key) => {
      const hint = issue.path.length === 0 ? didYouMean(key, known) : "";
      const where = pathText([...issue.path, key]);
      return { path: where, message: `unknown argument "${where}"${hint}` };
    });
  }
  const received = issue.path.reduce<unknown>(
    // The path comes from walking this very value, so every step is one of its keys.
    (at, key) =>
      typeof at === "object" && at !== null ? (at as Record<PropertyKey, unknown>)[key] : undefined,
    root,
  );
  const expectation = expected(issue);
  if (received === undefined) return [{ path, message: `"${path}" is required: expected ${expectation}` }];
  return [
    { path, message: `"${path || "(root)"}": expected ${expectation}, received ${describe(received)}` },
  ];
}

/** What was expected, in words that need no knowledge of zod. */
function expected(issue: z.core.$ZodIssue): string {
  switch (issue.code) {
    case "invalid_type":
      return issue.expected === "int" ? "a whole number" : issue.expected;
    case "invalid_value":
      return `one of ${issue.values.map((value) => JSON.stringify(value)).join(", ")}`;
    case "invalid_union": {
      const options = issue.errors.flatMap((branch) => branch.slice(0, 1).map(expected));
      return options.length > 0 ? [...new Set(options)].join(" or ") : issue.message;
    }
    case "too_small":
      return `${measure(issue.origin)}${issue.inclusive === false ? "more than" : "at least"} ${issue.minimum}`;
    case "too_big":
      return `${measure(issue.origin)}${issue.inclusive === false ? "less than" : "at most"} ${issue.maximum}`;
    case "invalid_format":
      return issue.format === "regex" && issue.pattern ? `text that matches ${issue.pattern}` : issue.format;
    default:
      return issue.message;
  }
}

function measure(origin: string): string {
  if (origin === "string") return "a length of ";
  return origin === "array" || origin === "set" ? "a number of items of " : "";
}

function pathText(path: readonly PropertyKey[]): string {
  return path.reduce<string>((text, step) => {
    if (typeof step === "number") return `${text}[${step}]`;
    return text === "" ? String(step) : `${text}.${String(step)}`;
  }, "");
}

function describe(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "object") return "an object";
  const text = JSON.stringify(value) ?? typeof value;
  return text.length > QUOTED_MAX_CHARS
    ? `a ${typeof value} of ${text.length} characters`
    : `${typeof value} ${text}`;
}
