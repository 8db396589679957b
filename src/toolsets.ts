/** Named groups of tools that are turned on and off together. */
import { MoorageError } from "./errors.ts";
import { didYouMean } from "./nearest.ts";

/** Groups made of other groups, by name. */
export type ToolsetIncludes = Readonly<Record<string, readonly string[]>>;

export interface ToolsetChoice {
  /** @default all */
  readonly enabled?: readonly string[];
  /** Wins over `enabled`. */
  readonly disabled?: readonly string[];
  readonly includes?: ToolsetIncludes;
}

/**
 * Says which toolsets are on.
 *
 * @param known toolsets that have tools
 * @returns a test for the toolset of a tool
 * @throws {MoorageError} INVALID_CONFIG for a name that nobody knows, and for groups that include each other
 */
export function chooseToolsets(
  choice: ToolsetChoice,
  known: ReadonlySet<string>,
): (toolset: string) => boolean {
  const includes = choice.includes ?? {};
  for (const name of Object.keys(includes)) expand(name, includes, known, []);
  const enabled =
    choice.enabled && new Set(choice.enabled.flatMap((name) => expand(name, includes, known, [])));
  const disabled = new Set(choice.disabled?.flatMap((name) => expand(name, includes, known, [])));
  return (toolset) => (enabled?.has(toolset) ?? true) && !disabled.has(toolset);
}

function expand(
  name: string,
  includes: ToolsetIncludes,
  known: ReadonlySet<string>,
  trail: readonly string[],
): readonly string[] {
  if (trail.includes(name)) {
    throw new MoorageError("INVALID_CONFIG", `Toolsets include each other: ${[...trail, name].join(" -> ")}`);
  }
  const parts = Object.hasOwn(includes, name) ? includes[name] : undefined;
  if (parts === undefined && !known.has(name)) {
    const names = [...new Set([...known, ...Object.keys(includes)])].sort();
    throw new MoorageError(
      "INVALID_CONFIG",
      `Unknown toolset "${name}"${didYouMean(name, names)} (there are: ${names.join(", ")})`,
      { suggestion: "Name toolsets that there are, or leave the choice out for all of them." },
    );
  }
  return [name, ...(parts ?? []).flatMap((part) => expand(part, includes, known, [...trail, name]))];
}
