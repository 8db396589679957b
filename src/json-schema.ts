/** JSON Schema draft 7 from zod, as models and clients get it. */
import { z } from "zod";

/** A JSON Schema document, draft 7. */
export type JsonSchema = { readonly [keyword: string]: unknown };

/**
 * Writes `schema` as JSON Schema draft 7.
 *
 * @param io `input` is what may be sent (keys with defaults are optional), `output` what comes out
 * @throws {Error} when a part of it cannot be written as JSON Schema
 */
export function toJsonSchema(schema: z.ZodType, io: "input" | "output"): JsonSchema {
  const { $schema: _, ...document } = z.toJSONSchema(schema, {
    target: "draft-7",
    io,
    override: ({ jsonSchema }) => {
      // zod bounds every integer by what a double can hold; that tells a model nothing.
      if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
      if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
    },
  });
  return document;
}
