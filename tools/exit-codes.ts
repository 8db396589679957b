/** What an exit code says, where it says something other than success or a fault. */
import { constants } from "node:os";
import { type Command, parse, type Statement } from "unbash";

type Node = Statement["command"];
type Meanings = Readonly<Record<number, string>>;

const NO_MATCH: Meanings = { 1: "No line matched", 2: "The search itself failed" };
const DIFFERENT: Meanings = { 1: "The inputs differ", 2: "The comparison itself failed" };
const FALSE: Meanings = { 1: "The condition is false", 2: "The condition is not well formed" };
const NOT_FOUND: Meanings = { 1: "Nothing of that name was found" };
const NO_PROCESS: Meanings = { 1: "No process matched" };

/** By program, or by `git` and its subcommand. */
const PROGRAMS: Readonly<Record<string, Meanings>> = {
  grep: NO_MATCH,
  egrep: NO_MATCH,
  fgrep: NO_MATCH,
  zgrep: NO_MATCH,
  rg: NO_MATCH,
  ag: NO_MATCH,
  "git grep": NO_MATCH,
  diff: DIFFERENT,
  cmp: DIFFERENT,
  "git diff": { 1: "There are differences" },
  test: FALSE,
  "[": FALSE,
  find: { 1: "Some paths could not be read" },
  which: NOT_FOUND,
  command: NOT_FOUND,
  type: NOT_FOUND,
  pgrep: NO_PROCESS,
  pkill: NO_PROCESS,
  timeout: { 124: "The time limit of timeout was reached" },
  pytest: { 1: "Some tests failed", 5: "No tests were collected" },
  ssh: { 255: "The connection failed" },
  wget: { 4: "The network failed", 8: "The server answered with an error" },
  curl: {
    6: "The host name could not be resolved",
    7: "The connection was refused or failed",
    22: "The server answered with an error status",
    28: "The time limit was reached",
    35: "The TLS handshake failed",
    52: "The server sent nothing back",
    56: "Receiving from the network failed",
    60: "The server's certificate could not be verified",
  },
};

/** Programs that run another and give its exit code. */
const WRAPPERS = new Set([
  "sudo",
  "env",
  "nice",
  "nohup",
  "time",
  "exec",
  "builtin",
  "stdbuf",
  "timeout",
  "command",
]);
/** Longer command lines are not parsed for a hint. */
const PARSED_MAX_CHARS = 65_536;
/** What hardly fails before the command that counts: `cd app && grep ...`. */
const PREPARATIONS = new Set(["cd", "export", "echo", "printf", "true", ":", "set", "source", "."]);

const ANY: Meanings = {
  126: "The command was found but could not be executed",
  127: "Command not found",
  137: "Killed by SIGKILL; often the memory limit",
};

/**
 * What an exit code means for a command line, or null when there is nothing to add.
 *
 * Read from the last simple command, and only where that one surely gave the code.
 */
export function exitCodeMeaning(commandLine: string, exitCode: number): string | null {
  if (exitCode === 0) return null;
  return meaningFor(commandLine, exitCode) ?? ANY[exitCode] ?? signalMeaning(exitCode);
}

function meaningFor(commandLine: string, exitCode: number): string | null {
  const decisive = lastCommand(commandLine);
  if (decisive?.type === "TestCommand") return FALSE[exitCode] ?? null;
  if (decisive?.type !== "Command") return null;
  for (const program of programsOf(decisive)) {
    const meaning = Object.hasOwn(PROGRAMS, program) ? PROGRAMS[program]?.[exitCode] : undefined;
    if (meaning !== undefined) return meaning;
  }
  return null;
}

function lastCommand(commandLine: string): Node | null {
  if (commandLine.length > PARSED_MAX_CHARS) return null;
  try {
    const { commands, errors } = parse(commandLine);
    const last = commands.at(-1);
    return last && !last.background && (errors?.length ?? 0) === 0 ? decisiveCommand(last.command) : null;
  } catch {
    // The hint is an extra; a command line that the parser chokes on must not cost the command's result.
    return null;
  }
}

/** The command whose exit code is the whole's, when that is certain enough. */
function decisiveCommand(node: Node): Node | null {
  switch (node.type) {
    case "Redirected":
      return decisiveCommand(node.command);
    case "Pipeline": {
      const last = node.commands.at(-1);
      const isNegated = node.prefixes.some(({ type }) => type === "Negation");
      return last && !isNegated ? decisiveCommand(last) : null;
    }
    case "AndOr": {
      const last = node.commands.at(-1);
      const isFallback = node.operators.at(-1) === "||";
      const areHarmless = node.commands
        .slice(0, -1)
        .every((part) => part.type === "Command" && PREPARATIONS.has(part.name?.value ?? ""));
      return last && (isFallback || areHarmless) ? decisiveCommand(last) : null;
    }
    default:
      return node;
  }
}

/** The program's name, then those that it wraps: `sudo grep x` gives `sudo`, `grep`. */
function programsOf(command: Command): readonly string[] {
  const words = [command.name, ...command.args]
    .flatMap((word) => (word?.type === "Word" ? [word.value] : []))
    .map((word) => word.replace(/^.*\/(?=.)/, ""));
  const programs: string[] = [];
  while (words.length > 0) {
    const [program = "", next = ""] = words;
    programs.push(program === "git" ? `git ${next}` : program);
    if (!WRAPPERS.has(program)) break;
    words.shift();
    // Options, assignments and durations of the wrapper itself.
    while (/^-|=|^\d/.test(words[0] ?? "")) words.shift();
  }
  return programs;
}

function signalMeaning(exitCode: number): string | null {
  const [name] = Object.entries(constants.signals).find(([, number]) => number === exitCode - 128) ?? [];
  return name === undefined ? null : `Ended by ${name}`;
}
