/**
 * Finds tool modules without running them: files whose syntax tree calls `registerTool` at module level. Dropping a
 * file into a tool folder is all it takes. Calls inside functions, classes and conditions do not count, since
 * importing the module would not surely register anything.
 */
import { randomBytes } from "node:crypto";
import { readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { z } from "zod";
import { MoorageError, toMoorageError } from "./errors.ts";
import { limits } from "./limits.ts";

/** A module that could not be read, parsed or loaded; the others were. */
export interface ModuleProblem {
  readonly path: string;
  readonly error: MoorageError;
}

export interface DiscoveryOptions {
  /** Folders with tool modules; only the files directly in them count. */
  readonly folders: readonly string[];
  /** File that remembers which unchanged files hold tools. @default none: every file is read */
  readonly cacheFile?: string;
}

export interface Discovery {
  /** Absolute paths in order of folder and name. */
  readonly modules: readonly string[];
  readonly problems: readonly ModuleProblem[];
  /** Files that had to be read because the cache did not know them. */
  readonly scanned: number;
}

const CACHE = z.object({
  version: z.literal(1),
  /** Path to modification time in nanoseconds, size, and whether it registers a tool. */
  files: z.record(z.string(), z.tuple([z.string(), z.number(), z.boolean()])),
});
type CachedFiles = z.output<typeof CACHE>["files"];

/** Finds the tool modules of some folders. A folder that is missing is a problem, not a failure. */
export async function discoverTools({ folders, cacheFile }: DiscoveryOptions): Promise<Discovery> {
  const problems: ModuleProblem[] = [];
  const modules: string[] = [];
  const known = cacheFile === undefined ? {} : await readCache(cacheFile);
  const seen: CachedFiles = {};
  let scanned = 0;
  const roots = [...new Set(folders.map((folder) => resolve(folder)))];
  for (const root of roots) {
    for (const path of await candidates(root, problems)) {
      try {
        const { mtimeNs, size } = await stat(path, { bigint: true });
        const [time, bytes] = [String(mtimeNs), Number(size)];
        const cached = Object.hasOwn(known, path) ? known[path] : undefined;
        const fresh = cached?.[0] === time && cached[1] === bytes;
        if (!fresh) scanned += 1;
        const registers = fresh ? cached[2] : await registersTool(path);
        seen[path] = [time, bytes, registers];
        if (registers) modules.push(path);
      } catch (error) {
        problems.push({
          path,
          error: toMoorageError(error, "REGISTRATION_INVALID", "Cannot read a tool module"),
        });
      }
    }
  }
  if (cacheFile !== undefined) {
    // Entries of other folders stay; those of these folders are replaced, so that removed files drop out.
    const others = Object.entries(known).filter(([path]) => !roots.includes(resolve(path, "..")));
    const files = Object.fromEntries([...others, ...Object.entries(seen)]);
    if (JSON.stringify(files) !== JSON.stringify(known)) await writeCache(cacheFile, files, problems);
  }
  return { modules, problems, scanned };
}

/** Finds the tool modules of some folders and imports them in order. One bad module is told, the rest load. */
export async function loadTools(options: DiscoveryOptions): Promise<Discovery> {
  const discovery = await discoverTools(options);
  const problems = [...discovery.problems];
  const modules: string[] = [];
  for (const path of discovery.modules) {
    try {
      await withinLimit(import(pathToFileURL(path).href));
      modules.push(path);
    } catch (error) {
      problems.push({
        path,
        error: toMoorageError(error, "REGISTRATION_INVALID", "Cannot load a tool module"),
      });
    }
  }
  return { ...discovery, modules, problems };
}

async function candidates(folder: string, problems: ModuleProblem[]): Promise<readonly string[]> {
  try {
    const names = await readdir(folder);
    return names
      .filter((name) => /\.[tj]s$/.test(name) && !/\.(d|test)\.ts$/.test(name))
      .sort()
      .map((name) => join(folder, name));
  } catch (error) {
    problems.push({
      path: folder,
      error: toMoorageError(error, "INVALID_CONFIG", "Cannot read a tool folder"),
    });
    return [];
  }
}

async function registersTool(path: string): Promise<boolean> {
  const source = await readFile(path, "utf8");
  if (!source.includes("registerTool")) return false;
  // Loaded on first need: with a warm cache no module is parsed at all.
  const { parse } = await import("oxc-parser");
  const { program, errors } = await parse(path, source);
  const [fault] = errors;
  if (fault) {
    throw new MoorageError("REGISTRATION_INVALID", `Cannot parse "${path}": ${fault.message}`);
  }
  const names = importedNames(program);
  return names.size > 0 && program.body.some((statement) => callsAtModuleLevel(statement, names));
}

interface Node {
  readonly type: string;
  readonly [key: string]: unknown;
}

/** Local names that mean `registerTool` or a namespace that holds it. */
function importedNames(program: unknown): ReadonlySet<string> {
  const names = new Set<string>();
  for (const statement of nodesOf(program, "body")) {
    if (statement.type !== "ImportDeclaration" || statement.importKind === "type") continue;
    for (const specifier of nodesOf(statement, "specifiers")) {
      const local = nameOf(specifier.local);
      const isWanted =
        specifier.type === "ImportNamespaceSpecifier" || nameOf(specifier.imported) === "registerTool";
      if (local !== null && isWanted && specifier.importKind !== "type") names.add(local);
    }
  }
  return names;
}

/** What runs later or perhaps never when the module is imported. */
const NOT_AT_MODULE_LEVEL = new Set([
  "FunctionDeclaration",
  "FunctionExpression",
  "ArrowFunctionExpression",
  "ClassDeclaration",
  "ClassExpression",
  "IfStatement",
  "ConditionalExpression",
  "LogicalExpression",
  "SwitchStatement",
  "TryStatement",
  "ForStatement",
  "ForInStatement",
  "ForOfStatement",
  "WhileStatement",
  "DoWhileStatement",
]);

function callsAtModuleLevel(value: unknown, names: ReadonlySet<string>): boolean {
  if (Array.isArray(value)) return value.some((item) => callsAtModuleLevel(item, names));
  if (!isNode(value) || NOT_AT_MODULE_LEVEL.has(value.type)) return false;
  if (value.type === "CallExpression" && isRegistration(value.callee, names)) return true;
  return Object.values(value).some((part) => callsAtModuleLevel(part, names));
}

function isRegistration(callee: unknown, names: ReadonlySet<string>): boolean {
  if (!isNode(callee)) return false;
  if (callee.type === "Identifier") return names.has(nameOf(callee) ?? "");
  if (callee.type !== "MemberExpression" || nameOf(callee.property) !== "registerTool") return false;
  return names.has(nameOf(callee.object) ?? "");
}

function nodesOf(value: unknown, key: string): readonly Node[] {
  const list = isNode(value) ? value[key] : undefined;
  return Array.isArray(list) ? list.filter(isNode) : [];
}

function nameOf(value: unknown): string | null {
  if (!isNode(value)) return null;
  if (typeof value.name === "string") return value.name;
  return typeof value.value === "string" ? value.value : null;
}

function isNode(value: unknown): value is Node {
  return typeof value === "object" && value !== null && "type" in value && typeof value.type === "string";
}

/** A module whose top level never ends must not hold up the others. */
async function withinLimit(loading: Promise<unknown>): Promise<void> {
  const limit = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    limit.reject(new Error(`it did not finish loading within ${limits.toolModuleTimeoutMs} ms`));
  }, limits.toolModuleTimeoutMs);
  try {
    await Promise.race([loading, limit.promise]);
  } finally {
    clearTimeout(timer);
  }
}

/** What was written last; nothing when there is none or it is not what we write. */
async function readCache(path: string): Promise<CachedFiles> {
  try {
    return CACHE.parse(JSON.parse(await readFile(path, "utf8"))).files;
  } catch {
    // A cache is only a memory: without a good one every file is read again, and a good one is written.
    return {};
  }
}

/** Replaces the cache in one step, so that a reader never sees half of it. */
async function writeCache(path: string, files: CachedFiles, problems: ModuleProblem[]): Promise<void> {
  const temporary = `${path}.${randomBytes(6).toString("hex")}`;
  try {
    await writeFile(temporary, JSON.stringify({ version: 1, files }), { mode: 0o600, flag: "wx" });
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    problems.push({
      path,
      error: toMoorageError(error, "INVALID_CONFIG", "Cannot write the discovery cache"),
    });
  }
}
