/**
 * `moorage.yaml`: environments by name, toolsets and defaults. It decides what an agent may do, so it is read only
 * from the path that the operator names, or from the operator's own configuration folder; never because it lies in
 * a workspace.
 */
import { dirname, resolve } from "node:path";
import type { Document, LineCounter, Node } from "yaml";
import { z } from "zod";
import { isMoorageError, MoorageError } from "./errors.ts";
import { limits } from "./limits.ts";
import { didYouMean } from "./nearest.ts";
import { defaultConfigPath } from "./paths.ts";
import { readTextFile } from "./read-text.ts";
import { parseSpec } from "./spec.ts";

const variables = z
  .record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/), z.string())
  .describe("Variables of every command in the environment, by name and value.");

const rules = z.array(z.string());

const egress = z.union([
  z.enum(["open", "none"]).describe("Everything, or nothing."),
  z.strictObject({
    allow: rules.describe("Hosts, *.host, host:port, addresses and ranges. An empty list allows nothing."),
    deny: rules.optional().describe("The same, and wins over allow."),
    credentials: z
      .array(
        z.strictObject({
          host: z.string().describe("A rule, as in allow."),
          variable: z
            .string()
            .regex(/^[A-Za-z_][A-Za-z0-9_]*$/)
            .describe("Variable of this host with the value; in the environment it holds a placeholder."),
          header: z.string().optional().describe("Header that carries it. Default: Authorization."),
          format: z
            .string()
            .refine((text) => text.includes("{}"), "has no {} for the value")
            .optional()
            .describe("What the header holds, {} for the value. Default: Bearer {}."),
          tls: z
            .boolean()
            .optional()
            .describe("Whether requests for http://host leave this host as HTTPS. Default: false."),
        }),
      )
      .optional()
      .describe(
        "Credentials that the proxy puts into requests of plain HTTP and the environment never holds.",
      ),
  }),
]);

const environment = z.union([
  z.string().describe("A specification such as docker:node:24?memory=2g."),
  z.strictObject({
    spec: z.string().describe("A specification such as docker:node:24?memory=2g."),
    workspace: z
      .string()
      .optional()
      .describe("Folder of this host to work on, relative to this file. Default: the one for all."),
    env: variables.optional(),
    passEnv: z.array(z.string()).optional().describe("Variables of this host that reach the environment."),
    egress: egress
      .optional()
      .describe("What it may reach, in the place of the specification's own egress. Default: open."),
    keep: z.boolean().optional().describe("Whether it outlives the runtime. Default: false."),
  }),
]);

/** The configuration file's schema; `docs/moorage.schema.json` is written from it. */
export const CONFIG = z.strictObject({
  environments: z
    .record(z.string().regex(/^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/), environment)
    .optional()
    .describe("Environments by name."),
  default: z.string().optional().describe("Name of the environment that is used when none is named."),
  workspace: z.string().optional().describe("Folder of this host to work on, relative to this file."),
  toolsets: z.array(z.string()).optional().describe("Toolsets that are on. Default: all."),
  disabledToolsets: z.array(z.string()).optional().describe("Toolsets that are off; wins over toolsets."),
  toolsetIncludes: z
    .record(z.string(), z.array(z.string()))
    .optional()
    .describe("Toolsets made of other toolsets, by name."),
  checkpoints: z
    .strictObject({
      each: z
        .enum(["call", "turn", "never"])
        .optional()
        .describe(
          "How often files are kept before they change: before each call that can change them, once before the first such call of a turn, or never. Default: call.",
        ),
    })
    .optional()
    .describe("What can be undone."),
  toolFolders: z
    .array(z.string())
    .optional()
    .describe("Folders with tool modules, relative to this file. Their code runs on this host."),
});

/** A configuration as read, with paths made absolute. */
export type Config = z.output<typeof CONFIG>;

export interface ConfiguredEnvironment {
  readonly spec: string;
  readonly egress?: z.output<typeof egress> | undefined;
  readonly workspace?: string | undefined;
  readonly env?: Readonly<Record<string, string>> | undefined;
  readonly passEnv?: readonly string[] | undefined;
  readonly keep?: boolean | undefined;
}

/**
 * The configuration file to read: the one that is named, else `$MOORAGE_CONFIG`, else the one in the XDG
 * configuration folder when there is one.
 */
export function configPath(
  named: string | undefined,
  env: Readonly<Record<string, string | undefined>> = process.env,
): { readonly path: string; readonly isNamed: boolean } {
  const path = named ?? (env.MOORAGE_CONFIG || undefined);
  return { path: path ?? defaultConfigPath(env), isNamed: path !== undefined };
}

/**
 * Reads a configuration file.
 *
 * @param isNamed whether the file must be there; a file that was not asked for may be missing. @default true
 * @throws {MoorageError} INVALID_CONFIG with line and nearest key for everything that is wrong
 */
export async function readConfig(path: string, isNamed = true): Promise<Config> {
  try {
    return resolvePaths(
      await parseConfig(await readTextFile(path, limits.configMaxBytes), path),
      dirname(resolve(path)),
    );
  } catch (error) {
    if (isMoorageError(error)) throw error;
    // A home may be no folder: accounts of services have /dev/null or /nonexistent there.
    const code = error instanceof Error && "code" in error ? error.code : null;
    if ((code === "ENOENT" || code === "ENOTDIR") && !isNamed) return {};
    if (code === "ENOENT") {
      throw new MoorageError("INVALID_CONFIG", `Cannot read configuration "${path}": there is no such file`, {
        cause: error,
        suggestion: "Name a file that is there, or leave the option out.",
      });
    }
    const reason = error instanceof Error ? error.message : String(error);
    throw new MoorageError("INVALID_CONFIG", `Cannot read configuration "${path}": ${reason}`, {
      cause: error,
    });
  }
}

/**
 * Checks the text of a configuration file. Specifications in it are read too, so that a wrong one shows at once.
 *
 * @param path for messages
 * @throws {MoorageError} INVALID_CONFIG
 */
export async function parseConfig(text: string, path: string): Promise<Config> {
  // Loaded on first need: most runs have no configuration file.
  const { parseDocument, LineCounter } = await import("yaml");
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false, uniqueKeys: true });
  const [fault] = document.errors;
  if (fault) {
    const { line } = lines.linePos(fault.pos[0]);
    throw refusal([`${path}:${line}: ${fault.message}`], fault);
  }
  const parsed = CONFIG.safeParse(plainValue(document, path) ?? {});
  if (!parsed.success) {
    const faults = parsed.error.issues.flatMap((issue) => explain(issue, document, lines));
    throw refusal(faults.map(({ line, message }) => `${path}:${line}: ${message}`));
  }
  checkMeaning(parsed.data, (at) => `${path}:${lineOf(document, lines, at)}`);
  return parsed.data;
}

function plainValue(document: Document, path: string): unknown {
  try {
    return document.toJS();
  } catch (error) {
    // Aliases that multiply beyond all measure.
    throw refusal([`${path}: ${error instanceof Error ? error.message : String(error)}`], error);
  }
}

function checkMeaning(config: Config, where: (at: readonly PropertyKey[]) => string): void {
  const names = Object.keys(config.environments ?? {});
  for (const [name, entry] of Object.entries(config.environments ?? {})) {
    try {
      const { spec, egress: policy } = typeof entry === "string" ? { spec: entry, egress: undefined } : entry;
      const { options } = parseSpec(spec);
      if (policy !== undefined && options.egress !== undefined)
        throw new Error("its egress is said twice, in the specification and beside it");
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw refusal([`${where(["environments", name])}: environment "${name}": ${reason}`], error);
    }
  }
  if (config.default !== undefined && !names.includes(config.default)) {
    const hint = didYouMean(config.default, names);
    throw refusal([`${where(["default"])}: there is no environment "${config.default}"${hint}`]);
  }
}

function resolvePaths(config: Config, folder: string): Config {
  const absolute = (path: string) => resolve(folder, path);
  const environments =
    config.environments &&
    Object.fromEntries(
      Object.entries(config.environments).map(([name, entry]) => [
        name,
        typeof entry === "string" || entry.workspace === undefined
          ? entry
          : { ...entry, workspace: absolute(entry.workspace) },
      ]),
    );
  return {
    ...config,
    ...(environments && { environments }),
    ...(config.workspace !== undefined && { workspace: absolute(config.workspace) }),
    ...(config.toolFolders && { toolFolders: config.toolFolders.map(absolute) }),
  };
}

interface Fault {
  readonly line: number;
  readonly message: string;
}

function explain(issue: z.core.$ZodIssue, document: Document, lines: LineCounter): readonly Fault[] {
  const at = issue.path;
  if (issue.code === "unrecognized_keys") {
    const known = keysAt(CONFIG, at);
    return issue.keys.map((key) => ({
      line: lineOf(document, lines, [...at, key]),
      message: `unknown key "${[...at, key].join(".")}"${didYouMean(key, known)} (there are: ${known.join(", ")})`,
    }));
  }
  if (issue.code === "invalid_union") {
    // An environment that is a map was meant as one: its own faults say more than "text or map".
    const inner = issue.errors.find((branch) =>
      branch.every((part) => part.path.length > 0 || part.code !== "invalid_type"),
    );
    if (inner?.length)
      return inner.flatMap((part) => explain({ ...part, path: [...at, ...part.path] }, document, lines));
    const kinds = issue.errors.flatMap(([first]) =>
      first?.code === "invalid_type" ? first.expected : first?.code === "invalid_value" ? first.values : [],
    );
    const message = `"${at.join(".")}": expected ${kinds.map((kind) => (kind === "object" ? "a map" : kind)).join(" or ")}`;
    return [{ line: lineOf(document, lines, at), message }];
  }
  return [
    { line: lineOf(document, lines, at), message: `"${at.join(".") || "the file"}": ${issue.message}` },
  ];
}

/** Keys that the schema knows at a place. */
function keysAt(schema: z.core.$ZodType, at: readonly PropertyKey[]): readonly string[] {
  const [step, ...rest] = at;
  if (schema instanceof z.ZodOptional) return keysAt(schema.unwrap(), at);
  if (schema instanceof z.ZodUnion) return schema.options.flatMap((option) => keysAt(option, at));
  if (schema instanceof z.ZodRecord) return step === undefined ? [] : keysAt(schema.valueType, rest);
  if (!(schema instanceof z.ZodObject)) return [];
  if (step === undefined) return Object.keys(schema.shape);
  const part: unknown = schema.shape[String(step)];
  return part instanceof z.core.$ZodType ? keysAt(part, rest) : [];
}

/** Line of the key at a place, or of the nearest thing above it. */
function lineOf(document: Document, lines: LineCounter, at: readonly PropertyKey[]): number {
  for (let length = at.length; length > 0; length -= 1) {
    const parent: unknown = document.getIn(at.slice(0, length - 1), true) ?? document.contents;
    const key = String(at[length - 1]);
    const items: readonly unknown[] = isCollection(parent) ? parent.items : [];
    for (const [index, item] of items.entries()) {
      const node = isPair(item)
        ? String(item.key) === key
          ? item.key
          : null
        : String(index) === key
          ? item
          : null;
      const start = isRanged(node) ? node.range?.[0] : undefined;
      if (start !== undefined) return lines.linePos(start).line;
    }
  }
  return 1;
}

function isCollection(value: unknown): value is { readonly items: readonly unknown[] } {
  return typeof value === "object" && value !== null && "items" in value && Array.isArray(value.items);
}

function isPair(value: unknown): value is { readonly key: unknown } {
  return typeof value === "object" && value !== null && "key" in value;
}

function isRanged(value: unknown): value is Node {
  return typeof value === "object" && value !== null && "range" in value;
}

function refusal(faults: readonly string[], cause?: unknown): MoorageError {
  return new MoorageError("INVALID_CONFIG", faults.join("; "), { cause });
}
