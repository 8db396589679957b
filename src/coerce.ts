/**
 * Brings what a model sent nearer to what a schema asks, where nothing is lost by it: `"42"` to 42, `"true"`, JSON
 * text to an array or object, a scalar to a one-element array, `"null"` where null is allowed. A value that fits is
 * never touched, and one that cannot be brought there stays, so that validation can say what was expected.
 */
import type { JsonSchema } from "./json-schema.ts";

/** Nesting beyond this is left as it is: schemas may refer to themselves, and so may hostile input. */
const MAX_DEPTH = 64;

/** Unions of unions multiply; a value that takes more looks than this is left as it is from there on. */
const MAX_STEPS = 100_000;

/** A number as JSON writes it; anything looser (hexadecimal, `1_000`, `Infinity`) stays text. */
const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
/** A double holds this many decimal digits without loss. */
const EXACT_DIGITS = 15;

/**
 * @param schema JSON Schema draft 7
 * @returns `value`, or a copy in which some parts have the type that the schema asks for
 */
export function coerce(value: unknown, schema: JsonSchema): unknown {
  return new Coercion(schema).apply(value, schema, 0);
}

class Coercion {
  readonly #root: JsonSchema;
  #steps = 0;

  constructor(root: JsonSchema) {
    this.#root = root;
  }

  apply(value: unknown, given: unknown, depth: number): unknown {
    const schema = this.#resolve(given);
    if (schema === null || this.#isOver(depth) || this.#accepts(value, schema, depth)) return value;
    const branches = unionOf(schema);
    if (branches) return this.#applyUnion(value, branches, depth);
    for (const part of listOf(schema.allOf)) value = this.apply(value, part, depth + 1);
    let nearer: unknown;
    for (const type of typesOf(schema)) {
      const candidate = this.#toType(value, type, schema, depth);
      if (candidate !== undefined && this.#accepts(candidate, schema, depth)) return candidate;
      nearer ??= candidate;
    }
    // No whole fit. Parts of the right container are still brought nearer, so that only the wrong ones are named.
    return typeof value === "object" && Array.isArray(value) === Array.isArray(nearer) && nearer !== undefined
      ? nearer
      : value;
  }

  #applyUnion(value: unknown, branches: readonly unknown[], depth: number): unknown {
    for (const branch of branches) {
      const candidate = this.apply(value, branch, depth + 1);
      if (this.#accepts(candidate, branch, depth + 1)) return candidate;
    }
    return value;
  }

  /** The value as `type`, undefined when it cannot be that without loss. */
  #toType(value: unknown, type: string, schema: JsonSchema, depth: number): unknown {
    switch (type) {
      case "integer":
      case "number":
        return typeof value === "string" ? toNumber(value, type) : undefined;
      case "boolean":
        return typeof value === "string" ? toBoolean(value) : undefined;
      case "null":
        return value === "null" ? null : undefined;
      case "array":
        return this.#toArray(value, schema, depth);
      case "object":
        return this.#toObject(value, schema, depth);
      default:
        return undefined;
    }
  }

  #toArray(value: unknown, schema: JsonSchema, depth: number): unknown {
    const parsed = typeof value === "string" ? parseContainer(value) : value;
    const items = Array.isArray(parsed) ? parsed : isScalar(value) ? [value] : undefined;
    return items?.map((item, index) =>
      this.apply(item, Array.isArray(schema.items) ? schema.items[index] : schema.items, depth + 1),
    );
  }

  #toObject(value: unknown, schema: JsonSchema, depth: number): unknown {
    const parsed = typeof value === "string" ? parseContainer(value) : value;
    if (!isRecord(parsed)) return undefined;
    const properties = isRecord(schema.properties) ? schema.properties : {};
    const required = new Set(listOf(schema.required));
    const entries: [string, unknown][] = [];
    for (const [key, item] of Object.entries(parsed)) {
      const part = Object.hasOwn(properties, key) ? properties[key] : schema.additionalProperties;
      const coerced = this.apply(item, part, depth + 1);
      // Models that must name every key send null for what they leave out.
      const leftOut = coerced === null && Object.hasOwn(properties, key) && !required.has(key);
      if (!(leftOut && !this.#accepts(null, part, depth + 1))) entries.push([key, coerced]);
    }
    // fromEntries defines "__proto__" as a key like any other; an assignment would not.
    return Object.fromEntries(entries);
  }

  /** Whether the value has the types that the schema asks for, all the way down; bounds are validation's matter. */
  #accepts(value: unknown, given: unknown, depth: number): boolean {
    const schema = this.#resolve(given);
    if (schema === null || this.#isOver(depth)) return true;
    const branches = unionOf(schema);
    if (branches && !branches.some((branch) => this.#accepts(value, branch, depth + 1))) return false;
    if (!listOf(schema.allOf).every((part) => this.#accepts(value, part, depth + 1))) return false;
    if ("const" in schema && value !== schema.const) return false;
    if (Array.isArray(schema.enum) && !schema.enum.includes(value)) return false;
    const types = typesOf(schema);
    if (types.length > 0 && !types.some((type) => isType(value, type))) return false;
    if (Array.isArray(value)) {
      return value.every((item, index) =>
        this.#accepts(item, Array.isArray(schema.items) ? schema.items[index] : schema.items, depth + 1),
      );
    }
    if (!isRecord(value)) return true;
    const properties = isRecord(schema.properties) ? schema.properties : {};
    if (listOf(schema.required).some((key) => typeof key === "string" && !Object.hasOwn(value, key)))
      return false;
    return Object.entries(value).every(([key, item]) =>
      Object.hasOwn(properties, key)
        ? this.#accepts(item, properties[key], depth + 1)
        : schema.additionalProperties !== false &&
          this.#accepts(item, schema.additionalProperties, depth + 1),
    );
  }

  #isOver(depth: number): boolean {
    this.#steps += 1;
    return depth > MAX_DEPTH || this.#steps > MAX_STEPS;
  }

  /** Follows references inside the document; null for a schema that allows anything. */
  #resolve(given: unknown): JsonSchema | null {
    let schema = given;
    for (let hops = 0; hops < MAX_DEPTH; hops += 1) {
      if (!isRecord(schema)) return null;
      const reference = schema.$ref;
      if (typeof reference !== "string") return schema;
      schema = reference
        .replace(/^#\/?/, "")
        .split("/")
        .filter((step) => step !== "")
        .reduce<unknown>((at, step) => (isRecord(at) ? at[unescapePointer(step)] : undefined), this.#root);
    }
    return null;
  }
}

function toNumber(text: string, type: "integer" | "number"): number | undefined {
  const trimmed = text.trim();
  if (!NUMBER.test(trimmed)) return undefined;
  const number = Number(trimmed);
  const digits = trimmed.replace(/[eE].*$/, "").replaceAll(/^-?0*\.?0*|[-.]/g, "");
  const exact = digits.length <= EXACT_DIGITS || String(number) === trimmed;
  if (!Number.isFinite(number) || !exact) return undefined;
  return type === "integer" && !Number.isSafeInteger(number) ? undefined : number;
}

function toBoolean(text: string): boolean | undefined {
  const word = text.trim().toLowerCase();
  return word === "true" ? true : word === "false" ? false : undefined;
}

/** The array or object that the text is JSON of. */
function parseContainer(text: string): unknown {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    // Text that is no JSON stays text; validation says what was expected.
    return undefined;
  }
}

function isType(value: unknown, type: string): boolean {
  switch (type) {
    case "integer":
      return Number.isInteger(value);
    case "null":
      return value === null;
    case "array":
      return Array.isArray(value);
    case "object":
      return isRecord(value);
    default:
      return typeof value === type;
  }
}

function unionOf(schema: JsonSchema): readonly unknown[] | null {
  const branches = schema.anyOf ?? schema.oneOf;
  return Array.isArray(branches) ? branches : null;
}

function typesOf(schema: JsonSchema): readonly string[] {
  return (Array.isArray(schema.type) ? schema.type : [schema.type]).filter(
    (type) => typeof type === "string",
  );
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function isScalar(value: unknown): boolean {
  return ["string", "number", "boolean"].includes(typeof value);
}

function isRecord(value: unknown): value is JsonSchema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function unescapePointer(step: string): string {
  return decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~");
}
