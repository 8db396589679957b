/** Which environments are asked for, by name: from `name=spec` words, a map, and the names that a configuration has. */
import { MoorageError } from "./errors.ts";
import { didYouMeanSpec, FORMS, parseSpec } from "./spec.ts";

const NAME = /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/;
/** A name before `=`; the `=` of an option comes after a `:` or `?`. */
const NAMED = /^([^:?=]*)=(.*)$/s;

/**
 * Reads the words of a command line, each `spec` or `name=spec`. A spec without a name is called by its backend.
 *
 * @returns specs by name, in the order given
 * @throws {MoorageError} INVALID_SPEC for a bad or repeated name
 */
export function parseEnvironmentWords(words: readonly string[]): Readonly<Record<string, string>> {
  const specs = new Map<string, string>();
  for (const word of words) {
    const [, given, spec = word] = NAMED.exec(word) ?? [];
    // What no environment can be called by is no name of one either: as a specification, more can be said of it.
    if (given === undefined && !NAME.test(defaultName(spec))) parseSpec(spec);
    const name = checkName(given ?? defaultName(spec));
    if (specs.has(name)) {
      throw new MoorageError("INVALID_SPEC", `Two environments are called "${name}"; write name=${spec}`);
    }
    specs.set(name, spec);
  }
  return Object.fromEntries(specs);
}

/** How an environment is called that was given no name: by its backend, or by its name in the configuration. */
export function defaultName(spec: string): string {
  const [, backend = ""] = /^([^:?]*)/.exec(spec) ?? [];
  return backend.replace("+", "-") || "default";
}

/** @throws {MoorageError} INVALID_SPEC */
export function checkName(name: string): string {
  if (NAME.test(name)) return name;
  throw new MoorageError(
    "INVALID_SPEC",
    `"${name}" is no name for an environment: letters, digits, "-" and "_", at most 64`,
  );
}

/**
 * Says what a word means that may be a spec or the name of a configured environment. A configured name wins.
 *
 * @throws {MoorageError} INVALID_SPEC naming the nearest backend or configured name
 */
export function checkKnown(word: string, configured: readonly string[]): void {
  if (configured.includes(word)) return;
  const [, head = ""] = /^([^:?]*)/.exec(word) ?? [];
  const isBare = head === word && !Object.hasOwn(FORMS, head);
  if (isBare) {
    const names = [...configured, ...Object.keys(FORMS)];
    const message = `There is no environment "${word}"${didYouMeanSpec(word, names)} (there are: ${names.join(", ")})`;
    throw new MoorageError(
      "INVALID_SPEC",
      message,
      configured.length > 0
        ? {}
        : {
            suggestion:
              "Write a specification such as docker:IMAGE, or name the file that has it with --config.",
          },
    );
  }
  parseSpec(word);
}
