/**
 * Writes the pages that say what the sources say: `npm run docs`. Tests hold them to the sources.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { CONFIG } from "../src/config.ts";
import { ERRORS } from "../src/errors.ts";
import { toJsonSchema } from "../src/json-schema.ts";
import { limits } from "../src/limits.ts";

const ROOT = join(import.meta.dirname, "..");

/** Generated pages by path from the root. */
export const PAGES: Readonly<Record<string, () => string>> = {
  "docs/errors.md": errorsPage,
  "docs/limits.md": limitsPage,
  "docs/moorage.schema.json": configSchema,
};

const KINDS: Readonly<Record<string, string>> = {
  "fix-input": "change the arguments",
  "fix-setup": "a person must change the machine or the configuration",
  retry: "the same call may succeed later",
  reconcile: "the outcome is unknown; look before acting again",
  refused: "a policy said no; do not retry",
  bug: "a fault of ours or of a tool; report it",
};

function errorsPage(): string {
  const kinds = Object.entries(KINDS).map(([kind, meaning]) => `- \`${kind}\`: ${meaning}`);
  const rows = Object.entries(ERRORS).map(
    ([code, { kind, retryable, suggestion }]) =>
      `| \`${code}\` | ${kind} | ${retryable ? "yes" : "no"} | ${suggestion} |`,
  );
  return [
    "# Errors",
    "",
    "A command that ran is a result, whatever its exit code. What is listed here are failures and refusals of Moorage",
    "itself: `MoorageError` in code, `{code, message, suggestion, retryable}` for a model. Match on the code; codes do",
    "not change. The kind says what to do:",
    "",
    ...kinds,
    "",
    "| code | kind | retryable | suggestion, unless the call knows better |",
    "|---|---|---|---|",
    ...rows,
    "",
  ].join("\n");
}

function limitsPage(): string {
  const source = readFileSync(join(ROOT, "src/limits.ts"), "utf8");
  const rows = Object.entries(limits).map(([name, value]) => {
    const comment = new RegExp(`/\\*\\*((?:(?!\\*/)[\\s\\S])*)\\*/\\s*${name}:`).exec(source)?.[1];
    if (comment === undefined) throw new Error(`Limit "${name}" has no comment`);
    const text = comment.replaceAll(/\s*\n\s*\*\s*/g, " ").trim();
    return `| \`${name}\` | ${String(value.toLocaleString("en-US"))} | ${text.replaceAll("|", "\\|")} |`;
  });
  return [
    "# Limits",
    "",
    "Every number that bounds work. The unit stands in the name or in the explanation.",
    "",
    "| limit | value | what it bounds, and why |",
    "|---|---|---|",
    ...rows,
    "",
    "## Result budget",
    "",
    "A result that is longer than `resultMaxBytes` or `resultMaxLines` is cut in the middle: a third of the room goes to",
    "the beginning and two thirds to the end, where errors stand. The marker between them counts what is missing. Cuts",
    "fall at line ends, and never inside a character or an escape sequence.",
    "",
  ].join("\n");
}

function configSchema(): string {
  const schema = {
    $schema: "http://json-schema.org/draft-07/schema#",
    title: "moorage.yaml",
    ...toJsonSchema(CONFIG, "input"),
  };
  return `${JSON.stringify(schema, null, 2)}\n`;
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  for (const [path, page] of Object.entries(PAGES)) writeFileSync(join(ROOT, path), page());
}
