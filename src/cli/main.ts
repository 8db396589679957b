/**
 * The command line from its words to its exit status. Machine output goes to stdout, everything else to stderr; a
 * failure of ours is never shown as a command's output.
 */
import { EXIT } from "./exit.ts";
import { printFailure } from "./failure.ts";
import { flushOutput, guardOutput, isOutputLost } from "./output.ts";
import { createProgram } from "./program.ts";
import { usageError, wantsJson } from "./usage.ts";

/** Runs one command line and leaves the process with its exit status. */
export async function main(words: readonly string[]): Promise<void> {
  guardOutput();
  const exitCode = await run(words);
  await flushOutput();
  process.exit(isOutputLost() ? EXIT.ours : exitCode);
}

async function run(words: readonly string[]): Promise<number> {
  let exitCode: number = EXIT.ok;
  const program = createProgram((code) => {
    exitCode = code;
  });
  try {
    await program.parseAsync(asHelp(words), { from: "user" });
    return exitCode;
  } catch (error) {
    const failure = usageError(error, program);
    // Help that was asked for.
    if (failure === null) return EXIT.ok;
    printFailure(failure, { json: wantsJson(program) });
    return EXIT.ours;
  }
}

/** `help sync push` as `sync push --help`: the parser's own command looks at one word. */
function asHelp(words: readonly string[]): readonly string[] {
  const [first, ...rest] = words;
  return first === "help" && rest.length > 1 ? [...rest, "--help"] : words;
}
