/** Options of environment specifications: each a reader from text to a typed value. */
import type { Egress, SpecOptions } from "../environments/spec.ts";
import { didYouMean } from "./nearest.ts";

export type OptionName = keyof SpecOptions;

/** Readers by option. The text is null for an option without `=`. They throw an `Error` that says what is expected. */
export const OPTIONS: { readonly [Name in OptionName]-?: (text: string | null) => SpecOptions[Name] } = {
  workspace: absolutePath,
  egress: readEgress,
  keep: readBoolean,
  id: word,
  isolation: (text) => oneOf(text, ["none", "bubblewrap"]),
  memory: (text) => (text === "0" ? 0 : readBytes(text)),
  cpus: (text) => readNumber(text, /^\d+(\.\d+)?$/, "a number of processors such as 1.5"),
  pids: (text) => readNumber(text, /^\d+$/, "a whole number from 1"),
  pool: (text) => (text === "0" ? 0 : readNumber(text, /^\d+$/, "a whole number from 0")),
  user: word,
  pull: (text) => oneOf(text, ["missing", "never"]),
  shm_size: readBytes,
  platform: readPlatform,
  read_only: readBoolean,
  unsafe: (text) => given(text).split(",").map(word),
  known_hosts: (text) => oneOf(text, ["strict", "accept-new"]),
  base_url: readUrl,
  runtime: word,
};

function given(text: string | null): string {
  if (text === null || text === "") throw new Error("expected a value");
  return text;
}

function word(text: string | null): string {
  if (!/^[A-Za-z0-9_][A-Za-z0-9_.:@+-]*$/.test(given(text))) throw new Error(`"${text}" is no name`);
  return given(text);
}

function oneOf<const Word extends string>(text: string | null, words: readonly Word[]): Word {
  const found = words.find((candidate) => candidate === text);
  if (found !== undefined) return found;
  throw new Error(`expected ${words.join(" or ")}, received "${text ?? ""}"${didYouMean(text ?? "", words)}`);
}

/** An option alone, without `=`, means yes. */
function readBoolean(text: string | null): boolean {
  return text === null || oneOf(text, ["true", "false"]) === "true";
}

function readNumber(text: string | null, pattern: RegExp, expected: string): number {
  const number = pattern.test(text ?? "") ? Number(text) : 0;
  if (number > 0 && Number.isSafeInteger(Math.ceil(number))) return number;
  throw new Error(`expected ${expected}, received "${text ?? ""}"`);
}

const UNITS: Readonly<Record<string, number>> = {
  "": 1,
  b: 1,
  k: 1024,
  m: 1024 ** 2,
  g: 1024 ** 3,
  t: 1024 ** 4,
};

function readBytes(text: string | null): number {
  const [, amount = "", unit = "?"] = /^(\d+(?:\.\d+)?)([bkmgt]?)(?:i?b)?$/i.exec(text ?? "") ?? [];
  const bytes = Math.floor(Number(amount) * (UNITS[unit.toLowerCase()] ?? Number.NaN));
  if (Number.isSafeInteger(bytes) && bytes > 0) return bytes;
  throw new Error(`expected a size such as 512m or 2g, received "${text ?? ""}"`);
}

function readPlatform(text: string | null): string {
  if (/^[a-z0-9]+(\/[a-z0-9_.]+){0,2}$/.test(given(text))) return given(text);
  throw new Error(`expected a platform such as linux/amd64, received "${text}"`);
}

function absolutePath(text: string | null): string {
  if (!given(text).startsWith("/")) throw new Error(`expected an absolute path, received "${text}"`);
  return given(text);
}

function readUrl(text: string | null): string {
  const url = URL.parse(given(text));
  if (url && /^https?:$/.test(url.protocol)) return given(text);
  throw new Error(`expected an http or https address, received "${text}"`);
}

/** `*`, a host with optional `*.` and port, or an address range; `!` in front denies. The backend reads it strictly. */
const EGRESS_RULE =
  /^!?(?:(?:\*|(?:\*\.)?[A-Za-z0-9._-]+)(?::\d{1,5})?|[0-9A-Fa-f:.]+\/\d{1,3}(?::\d{1,5})?|\[[0-9A-Fa-f:.]+(?:\/\d{1,3})?\](?::\d{1,5})?)$/;

function readEgress(text: string | null): Egress {
  if (text === "open" || text === "none") return text;
  const allow = (text ?? "").split(",").filter((rule) => rule !== "");
  const alone = allow.find((rule) => /^(?:open|none)$/i.test(rule));
  if (alone !== undefined && allow.length > 1)
    throw new Error(`"${alone}" stands alone, and here stands beside rules: write one or the other`);
  const wrong = allow.find((rule) => !EGRESS_RULE.test(rule) || rule.startsWith("-"));
  if (wrong !== undefined) throw new Error(`"${wrong}" is no host, host:port or address range`);
  if (allow.length === 0)
    throw new Error("expected open, none, or hosts separated by commas; none allows nothing");
  // A lone word is more likely a misspelt policy than a host without a dot.
  const [only = ""] = allow;
  const hint = allow.length === 1 && !/[.:/]/.test(only) ? didYouMean(only, ["open", "none"]) : "";
  if (hint !== "") throw new Error(`expected open, none or hosts, received "${only}"${hint}`);
  return { allow };
}
