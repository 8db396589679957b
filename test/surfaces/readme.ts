/** What the README tells people to write, for tests that do just that. */
import { readFileSync } from "node:fs";

const README = readFileSync(new URL("../../README.md", import.meta.url), "utf8");

/** The code of every fence of a language. */
export function codeOf(language: "sh" | "ts"): readonly string[] {
  const fences = README.matchAll(new RegExp(`^\`\`\`${language}\n([\\s\\S]*?)^\`\`\`$`, "gm"));
  return [...fences].map(([, code = ""]) => code);
}

/** The words after `bin/moor` of the one line that begins so. */
export function moorWords(beginning: string): readonly string[] {
  const lines = codeOf("sh")
    .flatMap((code) => code.split("\n"))
    .filter((line) => line.startsWith(`bin/moor ${beginning}`));
  const [line = ""] = lines;
  if (lines.length !== 1) throw new Error(`The README has ${lines.length} lines "bin/moor ${beginning}"`);
  return line
    .replace(/ +#.*$/, "")
    .split(" ")
    .slice(1);
}
