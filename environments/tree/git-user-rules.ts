/** Where a person keeps the ignore rules of all their repositories, by their own configuration of git. */
import { readFileSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { isAbsolute, join } from "node:path";

/** A longer configuration is none that a person wrote, bytes. */
const CONFIG_MAX_BYTES = 1024 * 1024;

/**
 * The file that `core.excludesFile` names in the person's configuration, or git's default for it. What a configuration
 * includes is not read, and what a repository's own one says is not asked for.
 *
 * @returns null where there is none
 */
export function userRulesFile(): string | null {
  const home = process.env.HOME ?? homedir();
  const config = join(process.env.XDG_CONFIG_HOME || join(home, ".config"), "git");
  let file: string | null = join(config, "ignore");
  for (const each of [join(config, "config"), join(home, ".gitconfig")]) {
    const named = excludesFileIn(readText(each));
    if (named === undefined) continue;
    if (named.startsWith("~/")) file = join(home, named.slice(2));
    else file = isAbsolute(named) ? named : null;
  }
  return file;
}

/**
 * The last value of `core.excludesFile`.
 *
 * @see git's Documentation/config.txt for the form
 */
export function excludesFileIn(config: string): string | undefined {
  let section = "";
  let value: string | undefined;
  for (const line of config.replaceAll(/\\\r?\n/g, "").split("\n")) {
    const [, name, rest = ""] = /^\s*\[\s*([^\]"]*?)\s*(?:"[^"]*"\s*)?\](.*)$/.exec(line) ?? [];
    if (name !== undefined) section = line.includes('"') ? "" : name.toLowerCase();
    const [, found] = /^\s*excludesfile\s*=\s*(.*)$/i.exec(name === undefined ? line : rest) ?? [];
    if (section === "core" && found !== undefined) value = plain(found);
  }
  return value;
}

/** A value without its quotes, comment and the spaces around it. */
function plain(text: string): string {
  let value = "";
  let kept = 0;
  let isQuoted = false;
  for (let at = 0; at < text.length; at += 1) {
    const character = text.charAt(at);
    if (character === '"') isQuoted = !isQuoted;
    else if (character === "\\") {
      at += 1;
      value += text.charAt(at);
    } else if (!isQuoted && (character === "#" || character === ";")) break;
    else value += character;
    if (isQuoted || !/\s/.test(character)) kept = value.length;
  }
  return value.slice(0, kept);
}

function readText(file: string): string {
  try {
    const stat = statSync(file);
    return stat.isFile() && stat.size <= CONFIG_MAX_BYTES ? readFileSync(file, "utf8") : "";
  } catch {
    // There is none, or it is not ours to read: git reads none then, either.
    return "";
  }
}
