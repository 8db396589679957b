/** The options that several commands share, and how the value of an option is read. */
import { type Command, InvalidArgumentError, Option } from "commander";

export interface JsonOption {
  readonly json?: boolean;
}

/** Options of every command that works in an environment. */
export interface EnvironmentOptions extends JsonOption {
  readonly environment?: readonly string[];
  readonly workspace?: string;
  readonly config?: string;
  readonly sync?: string;
}

/** Options of every command that works with tools. */
export interface ToolOptions extends EnvironmentOptions {
  readonly toolsets?: readonly string[];
}

/** @param isSyncShown false where the folder to mirror is an argument: `--sync` is understood, to be told that */
export function addEnvironmentOptions(command: Command, isSyncShown = true): Command {
  const sync = new Option(
    "--sync <folder>",
    "copy this folder of the host into the workspace first, and changes both ways at the end (`moor mcp`: all along)",
  ).argParser(folder);
  return command
    .option("-e, --environment <spec>", "where it runs; see `moor --help`; repeatable as NAME=SPEC", collect)
    .option(
      "--workspace <folder>",
      "folder of this host to work on: run there, or mounted into the container",
      folder,
    )
    .addOption(isSyncShown ? sync : sync.hideHelp())
    .option("--config <file>", "read named environments and defaults from this file (moorage.yaml)");
}

export function addToolOptions(command: Command): Command {
  return addEnvironmentOptions(command).option(
    "--toolsets <names>",
    "only these toolsets, separated by commas",
    names,
  );
}

export function jsonOption(description: string): Option {
  return new Option("--json", description);
}

/** The values of an option that is given several times. */
export function collect(value: string, earlier: readonly string[] = []): readonly string[] {
  return [...earlier, value];
}

function names(value: string): readonly string[] {
  const items = value
    .split(",")
    .map((item) => item.trim())
    .filter(Boolean);
  if (items.length === 0) throw new InvalidArgumentError("Give names separated by commas.");
  return items;
}

/** An empty word comes of a variable that is not set, and does not mean the current folder. */
function folder(value: string): string {
  if (value !== "") return value;
  throw new InvalidArgumentError("Give a folder, as . for the current one.");
}

export function port(value: string): number {
  const number = Number(value);
  if (/^\d{1,5}$/.test(value) && number <= 65_535) return number;
  throw new InvalidArgumentError("Give a port as a number from 0 to 65535.");
}

export function seconds(value: string): number {
  const number = Number(value);
  if (!(number > 0 && Number.isFinite(number)) || value.trim() === "") {
    throw new InvalidArgumentError("Give seconds as a number above 0.");
  }
  return number;
}
