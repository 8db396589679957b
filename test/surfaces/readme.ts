/** What the README tells people to write, for tests that do just that. */
import { readFileSync } from "node:fs";

const README = readFileSync(new URL("../../README.md", import.meta.url), "utf8");

/** The code of every fence of a language. */
export function codeOf(language: "sh" | "ts"): readonly string[] {
  const fences = README.matchAll(new RegExp(`^\`\`\`${language}\n([\\s\\S]*?)^\`\`\`$`, "gm"));
  return [...fences].map(([, code = ""]) => code);
}

/** The words after `bin/moor` of the first line that begins so. */
export function moorWords(beginning: string): readonly string[] {
  const lines = codeOf("sh").flatMap((code) => code.split("\n"));
  const line = lines.find((each) => each.startsWith(`bin/moor ${beginning}`));
  if (line === undefined) throw new Error(`The README has no line "bin/moor ${beginning}"`);
  return line
    .replace(/ +#.*$/, "")
    .split(" ")
    .slice(1);
}
