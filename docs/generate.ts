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
import { FORMS } from "../src/spec.ts";
import type { OptionName } from "../src/spec-options.ts";

const ROOT = join(import.meta.dirname, "..");

/** Generated pages by path from the root. */
export const PAGES: Readonly<Record<string, () => string>> = {
  "docs/configuration.md": configurationPage,
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

/** Options of specifications: what a value looks like, and what it does. */
export const OPTION_HELP: Readonly<Record<OptionName, { readonly example: string; readonly does: string }>> =
  {
    workspace: { example: "/srv/app", does: "folder inside the environment where commands start, absolute" },
    egress: {
      example: "api.example.com,*.github.com",
      does: "outbound network: `open` (default), `none`, or the hosts, `host:port` and address ranges that are allowed, `!` in front to deny. Enforced by bubblewrap, docker and vercel, the last without ports; elsewhere anything but `open` is an error",
    },
    keep: {
      example: "true",
      does: "the environment and its background processes outlive the command; the same `id` finds them again. `moor ps` lists it, and `moor reap ID` removes it; on local and ssh the same `id` without `keep` ends it with itself",
    },
    id: { example: "web-1", does: "a stable name, by which a kept environment is found again" },
    isolation: { example: "bubblewrap", does: "`none` (default) or `bubblewrap`" },
    memory: { example: "2g", does: "memory at most; 0 for no limit" },
    cpus: { example: "1.5", does: "processors at most" },
    pids: { example: "512", does: "processes at most" },
    pool: { example: "2", does: "containers held started, so that the next one is there at once" },
    user: {
      example: "node",
      does: "user, or `user:group`, that commands run as. Default: the owner of the folder that `--workspace` mounts, else the image's user",
    },
    pull: {
      example: "never",
      does: "`missing` (default) pulls an image that is not there, `never` does not",
    },
    shm_size: { example: "256m", does: "size of `/dev/shm`" },
    platform: { example: "linux/amd64", does: "platform of the image" },
    read_only: { example: "true", does: "the container's root cannot be written; workspace and `/tmp` can" },
    unsafe: {
      example: "privileged",
      does: "rules, separated by commas, by which a container that is the host in disguise would be refused, and is not",
    },
    known_hosts: {
      example: "accept-new",
      does: "`strict` (default), or `accept-new` to record a host's key at the first connection",
    },
    base_url: {
      example: "http://127.0.0.1:8787",
      does: "another server of the same API, such as `moor serve`",
    },
    runtime: { example: "node24", does: "what the sandbox is made from" },
  };

function configurationPage(): string {
  const forms = Object.entries(FORMS);
  const options = Object.entries(OPTION_HELP).map(([name, { example, does }]) => {
    const takers = forms.flatMap(([backend, form]) =>
      form.options.some((option) => option === name) ? [backend] : [],
    );
    const who = takers.length === forms.length ? "all" : takers.join(", ");
    return `| \`${name}\` | \`${name}=${example}\` | ${who} | ${does} |`;
  });
  const page = readFileSync(join(ROOT, "docs/configuration.md"), "utf8");
  const withOptions = fillIn(page, "options", [
    "| option | example | of | what it does |",
    "|---|---|---|---|",
    ...options,
  ]);
  return fillIn(withOptions, "schema", ["| key | is | |", "|---|---|---|", ...schemaRows()]);
}

/** Puts lines where a page written by hand has room for them. */
function fillIn(page: string, name: string, lines: readonly string[]): string {
  const [begin, end] = [`<!-- ${name}: written by npm run docs -->`, "<!-- end -->"];
  const from = page.indexOf(begin) + begin.length;
  const to = page.indexOf(end, from);
  if (from < begin.length || to < 0) throw new Error(`The page has no room for ${name}`);
  return `${page.slice(0, from)}\n${lines.join("\n")}\n${page.slice(to)}`;
}

interface SchemaPart {
  readonly type?: string;
  readonly description?: string;
  readonly properties?: Readonly<Record<string, SchemaPart>>;
  readonly additionalProperties?: SchemaPart | false;
  readonly items?: SchemaPart;
  readonly anyOf?: readonly SchemaPart[];
}

/** The forms that a value may have. */
function formsOf(part: SchemaPart | false | undefined): readonly SchemaPart[] {
  return part ? (part.anyOf ?? [part]) : [];
}

/** The keys of the configuration file, those within others after them. */
function schemaRows(): readonly string[] {
  const kindOf = ({ type = "" }: SchemaPart): string => ({ array: "list", object: "map" })[type] ?? type;
  const within = (form: SchemaPart, at: string): readonly string[] => [
    ...rows(form, `${at}.`),
    ...formsOf(form.items).flatMap((each) => rows(each, `${at}[].`)),
    ...formsOf(form.additionalProperties).flatMap((each) => rows(each, `${at}.NAME.`)),
  ];
  const rows = (part: SchemaPart, path: string): readonly string[] =>
    Object.entries(part.properties ?? {}).flatMap(([name, inner]) => {
      const forms = formsOf(inner);
      const kinds = [...new Set(forms.map(kindOf))].join(" or ");
      const row = `| \`${path}${name}\` | ${kinds} | ${inner.description ?? ""} |`;
      return [row, ...forms.flatMap((form) => within(form, `${path}${name}`))];
    });
  // What the library writes for an object is a schema of an object.
  return rows(toJsonSchema(CONFIG, "input") as SchemaPart, "");
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  for (const [path, page] of Object.entries(PAGES)) writeFileSync(join(ROOT, path), page());
}
