/** Words that mean nothing, told with the nearest valid word. */
import { type Command, CommanderError } from "commander";
import type { MoorageError } from "../errors.ts";
import { nearest } from "../nearest.ts";
import { badUsage } from "./failure.ts";
import type { JsonOption } from "./options.ts";

/**
 * A mistake in the words as a failure of ours that names the nearest valid word; null for help that was asked for;
 * anything else as it is.
 */
export function usageError(error: unknown, program: Command): unknown {
  if (!(error instanceof CommanderError)) return error;
  if (error.exitCode === 0) return null;
  const command = commandOf(program);
  const help = `\`moor${path(command)} --help\``;
  const [, word = ""] = /'([^']*)'/.exec(error.message) ?? [];
  if (error.code === "commander.help") {
    const asked =
      program.args[0] === "help"
        ? program.args.find((each) => !each.startsWith("-") && each !== "help")
        : undefined;
    if (asked !== undefined) return badWord(`Unknown command "${asked}"`, asked, commandNames(command), help);
    return badUsage("No command is named", `Choose one of ${names(command)}; ${help} explains them.`);
  }
  if (error.code === "commander.unknownOption") {
    const options = command
      .createHelp()
      .visibleOptions(command)
      .flatMap(({ long }) => long ?? []);
    return badWord(`Unknown option "${word}"`, word, options, help);
  }
  if (error.code === "commander.unknownCommand") {
    return badWord(`Unknown command "${word}"`, word, commandNames(command), help);
  }
  return badUsage(complaint(error, word), `${help} shows how it is used.`);
}

/** The parser's other complaints in our words. @param word what the parser quotes: an argument or an option */
function complaint({ code, message }: CommanderError, word: string): string {
  const [option = word] = word.match(/--[a-z-]+/) ?? [];
  switch (code) {
    case "commander.missingArgument":
      return `Argument <${word}> is missing`;
    case "commander.optionMissingArgument":
      return `Option ${option} needs a value`;
    case "commander.excessArguments":
      return "There are more arguments than the command takes";
    case "commander.invalidArgument": {
      // error: option '-t, --timeout <seconds>' argument 'soon' is invalid. Give seconds …
      const [, value = "", reason = ""] =
        /argument '([\s\S]*)' is invalid\.\s*([\s\S]*)$/.exec(message) ?? [];
      return `Cannot use "${value}" for ${option}: ${reason.replace(/^G/, "g").replace(/\.$/, "")}`;
    }
    default:
      return sentence(message);
  }
}

function badWord(message: string, word: string, valid: readonly string[], help: string): MoorageError {
  const near = nearest(word, valid);
  const hint = near === null ? `Valid are ${valid.join(", ")}` : `Did you mean ${near}?`;
  return badUsage(message, `${hint}${near === null ? "; " : " "}${help} explains them all.`);
}

/** `error: option '--x' argument missing` as a sentence of ours, without commander's own guess. */
function sentence(message: string): string {
  const text = message
    .replace(/^error: /, "")
    .replace(/\s*\(Did you mean[^)]*\)\s*$/s, "")
    .replace(/\.$/, "");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** The command that the words had come to when they went wrong. */
function commandOf(program: Command): Command {
  const [name] = program.args;
  const next = program.commands.find((command) => command.name() === name);
  return next ? commandOf(next) : program;
}

/** Whether the command that was named has been asked for JSON. */
export function wantsJson(program: Command): boolean {
  return commandOf(program).opts<JsonOption>().json === true;
}

function path(command: Command): string {
  return command.parent ? `${path(command.parent)} ${command.name()}` : "";
}

function commandNames(command: Command): readonly string[] {
  return command
    .createHelp()
    .visibleCommands(command)
    .map((each) => each.name());
}

function names(command: Command): string {
  return commandNames(command)
    .filter((name) => name !== "help")
    .join(", ");
}
