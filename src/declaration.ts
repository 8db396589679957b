/** Checks what a tool declares about itself, once, at registering, so that no call meets a broken declaration. */
import { z } from "zod";
import { MoorageError } from "./errors.ts";
import { toJsonSchema } from "./json-schema.ts";
import { limits } from "./limits.ts";
import type { AnyTool, RegisteredTool } from "./registry.ts";

const NAME = /^[A-Za-z0-9_-]{1,64}$/;
/** Added by the listing when there are several environments, so no tool may declare it. */
const RESERVED_PARAMETER = "environment";

/**
 * Checks a declaration and writes its schemas.
 *
 * @throws {MoorageError} REGISTRATION_INVALID naming the fault
 */
export function checkTool(tool: AnyTool): RegisteredTool {
  const refuse = (reason: string, cause?: unknown): never => {
    throw new MoorageError("REGISTRATION_INVALID", `Cannot register "${String(tool?.name)}": ${reason}`, {
      cause,
    });
  };
  const shape = DECLARATION.safeParse(tool);
  if (!shape.success) {
    const [issue] = shape.error.issues;
    refuse(`${issue?.path.join(".") || "the declaration"}: ${issue?.message}`);
  }
  const aliases: readonly string[] = tool.aliases ?? [];
  if (new Set([tool.name, ...aliases]).size !== aliases.length + 1) refuse("an alias stands there twice");
  if (tool.parallel === "paths" && !tool.paths) refuse('parallel "paths" needs a paths function');
  if (tool.needsEnvironment !== false && RESERVED_PARAMETER in tool.parameters.shape) {
    refuse(`parameter "${RESERVED_PARAMETER}" is reserved: it is added when there are several environments`);
  }
  try {
    checkDefaults(tool.parameters, []);
    const parameters = refusingUnknownKeys(tool.parameters);
    return {
      tool,
      parameters,
      inputSchema: toJsonSchema(parameters, "input"),
      outputSchema: tool.output ? toJsonSchema(tool.output, "output") : null,
    };
  } catch (error) {
    return refuse(error instanceof Error ? error.message : String(error), error);
  }
}

const name = z.string().regex(NAME, "must be 1 to 64 letters, digits, underscores or hyphens");
const positive = z.number().positive();
const aFunction = z.custom((value) => typeof value === "function", "must be a function");
const anObjectSchema = z.custom((value) => value instanceof z.ZodObject, "must be a zod object");

const DECLARATION = z.looseObject({
  name,
  aliases: z.array(name).optional(),
  toolset: name,
  description: z
    .string()
    .max(limits.toolDescriptionMaxChars)
    .refine((text) => text.trim() !== "", "must not be empty"),
  title: z.string().min(1).optional(),
  parameters: anObjectSchema,
  output: anObjectSchema.optional(),
  handler: aFunction,
  availability: aFunction.optional(),
  requiredEnv: z.array(z.string().min(1)).optional(),
  permissions: z
    .array(z.enum(["file:read", "file:write", "terminal:execute", "process:manage", "network:use"]))
    .optional(),
  access: z.enum(["read", "operate", "high-impact", "dangerous"]),
  mutates: z.union([z.boolean(), aFunction]),
  idempotent: z.boolean(),
  parallel: z.enum(["safe", "never", "paths"]),
  paths: aFunction.optional(),
  needsEnvironment: z.boolean().optional(),
  timeoutMs: positive.optional(),
  resultBudget: z
    .strictObject({ maxBytes: positive.min(1_000).optional(), maxLines: positive.min(3).optional() })
    .optional(),
  dynamicDescription: aFunction.optional(),
});

/** A plain `z.object` drops unknown keys in silence; a model that misspells an argument should hear of it. */
function refusingUnknownKeys(schema: z.ZodObject): z.ZodObject {
  return schema._zod.def.catchall === undefined ? schema.strict() : schema;
}

/** zod takes a default on trust; a wrong one would first show in a call. `seen` ends recursive schemas. */
function checkDefaults(
  schema: z.core.$ZodType,
  path: readonly string[],
  seen = new Set<z.core.$ZodType>(),
): void {
  if (seen.has(schema)) return;
  seen.add(schema);
  const def = schema._zod.def;
  if ("defaultValue" in def && "innerType" in def && def.innerType instanceof z.core.$ZodType) {
    const checked = z.safeParse(def.innerType, def.defaultValue);
    if (!checked.success) {
      throw new Error(`the default of "${path.join(".")}" is not valid: ${checked.error.issues[0]?.message}`);
    }
  }
  for (const [key, part] of Object.entries(def)) {
    if (part instanceof z.core.$ZodType) checkDefaults(part, path, seen);
    else if (Array.isArray(part)) {
      for (const item of part) if (item instanceof z.core.$ZodType) checkDefaults(item, path, seen);
    } else if (key === "shape" && typeof part === "object" && part !== null) {
      for (const [field, item] of Object.entries(part)) {
        if (item instanceof z.core.$ZodType) checkDefaults(item, [...path, field], seen);
      }
    }
  }
}
