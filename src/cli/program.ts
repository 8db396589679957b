/**
 * Every command, its words and its help. Loads no command's code before that command is asked for, so that
 * `--help` and mistakes are answered at once.
 */
import { Argument, Command, Option } from "commander";
import type { ToolFormats } from "../listing.ts";
import type { DiffOptions, ListOptions, RestoreOptions } from "./checkpoints.ts";
import type { ExecOptions } from "./exec.ts";
import { oneOf } from "./failure.ts";
import type { McpOptions } from "./mcp.ts";
import {
  addEnvironmentOptions,
  addToolOptions,
  collect,
  type EnvironmentOptions,
  type JsonOption,
  jsonOption,
  port,
  seconds,
  type ToolOptions,
} from "./options.ts";
import type { ServeOptions } from "./serve.ts";
import type { SyncFolderOptions } from "./sync.ts";
import type { ToolsOptions } from "./tools.ts";
import { version } from "./version.ts";

const FORMATS: readonly (keyof ToolFormats)[] = ["openai", "anthropic", "mcp"];

const SPECS = `
Environments (-e SPEC, several as -e NAME=SPEC):
  local                      this machine, no isolation
  local?isolation=bubblewrap this machine, in a sandbox
  docker:IMAGE               a container of its own, removed at the end
  docker+attach:CONTAINER    a container that runs already; never stopped by us
  ssh://ME@HOST/FOLDER       a machine over SSH, reached as ssh reaches it
  vercel[:NAME]              a sandbox of the Vercel API, or of base_url; needs VERCEL_TOKEN, _TEAM_ID, _PROJECT_ID
  NAME                       an environment of the configuration file
Options follow as ?key=value&..., for example 'docker:node:24?memory=2g&user=node'. docs/configuration.md lists them,
and describes the configuration file moorage.yaml and the variables that are read
`;

/** Takes the exit status that a command ends with. */
type Finish = (exitCode: number) => void;

/** Builds the commands, in the order in which the help lists them. */
export function createProgram(finish: Finish): Command {
  const program = new Command("moor")
    .description(
      "Runs an agent's tools in a place you choose: this machine, a container, a machine over SSH.",
    )
    .usage("COMMAND [OPTIONS]")
    .version(version(), "-V, --version", "print the version")
    .helpOption("-h, --help", "print this help, or that of a command")
    .helpCommand("help [COMMAND...]", "print the help of a command")
    .enablePositionalOptions()
    .exitOverride()
    .configureHelp({ sortSubcommands: false, showGlobalOptions: false })
    .configureOutput({
      writeOut: (text) => process.stdout.write(text),
      // Mistakes are told once, by main, in our own words.
      writeErr: () => {},
      getOutHelpWidth: () => Math.min(process.stdout.columns ?? 100, 110),
    });
  program.addHelpText(
    "after",
    `${SPECS}
Examples:
  moor mcp -e docker:node:24 --workspace .        an agent's tools, in a container, over MCP
  moor exec -e docker:node:24 -- node --version   one command
  moor doctor                                     what works on this machine, and what to do

Exit status: 0, or the command's own with exec; 1 when the answer is a failure; 124 when exec timed out;
125 when we could not do it; 128 + n after signal n. Machine output goes to stdout, all else to stderr.`,
  );

  addCalls(program, finish);
  addMcp(program, finish);
  addSync(program, finish);
  addCheckpoints(program, finish);
  addServe(program, finish);
  addUpkeep(program, finish);
  addImages(program, finish);
  return program;
}

/** What runs a command or tools once, and the list of tools. */
function addCalls(program: Command, finish: Finish): void {
  addEnvironmentOptions(program.command("exec"))
    .summary("run one command")
    .description(
      "Runs one command and ends with its exit status. Its output streams as it comes, stdout to stdout and stderr to stderr. The words are a program and its arguments, and no shell reads them; for a shell line use --shell.",
    )
    .usage("[OPTIONS] [--] PROGRAM [ARG...]\n       moor exec [OPTIONS] --shell LINE")
    .addArgument(new Argument("[words...]", "program and arguments"))
    .option("-c, --shell <line>", "run this line in the environment's shell instead of a program")
    .option(
      "--cwd <folder>",
      "start in this folder of the environment, absolute or relative to the workspace",
    )
    .option(
      "--timeout <seconds>",
      "end the whole process tree after this time, with exit status 124",
      seconds,
    )
    .option("--stdin", "give our stdin, read to its end, to the command")
    .addOption(jsonOption("print the result as one JSON object instead of streaming"))
    .passThroughOptions()
    .addHelpText(
      "after",
      example(
        "moor exec -e local --timeout 60 --shell 'ls *.json | wc -l'",
        "Counts files in the shell, for at most a minute.",
      ),
    )
    .action(async (words: string[], options: ExecOptions) => {
      const { exec } = await import("./exec.ts");
      finish(await exec(words, options));
    });

  addToolOptions(program.command("call"))
    .summary("make one tool call")
    .description(
      "Makes one tool call through the whole pipeline and prints its result, a JSON object, as a model gets it. What the call started, a background process above all, ends with it: `moor mcp` keeps a session, and `moor batch` makes several calls in one. Ends with 1 when the result is a failure.",
    )
    .argument("<tool>", "name of the tool; `moor tools` lists them")
    .argument("<arguments>", "its arguments as a JSON object, or - to read them from stdin")
    .addOption(jsonOption("print the result on one line"))
    .addHelpText(
      "after",
      example(`moor call terminal '{"command": "echo $HOME"}' -e local`, "Runs a command as an agent would."),
    )
    .action(async (tool: string, args: string, options: ToolOptions) => {
      const { call } = await import("./call.ts");
      finish(await call(tool, args, options));
    });

  addToolOptions(program.command("batch"))
    .summary("make the tool calls of a model's message")
    .description(
      "Makes the tool calls of a model's message and prints a `tool` message for each, one JSON object per line, in the order of the calls, which share a shell session in each environment. What they started ends with the last. Takes an assistant message with tool_calls, an array of tool calls or of messages, or one of those per line. Ends with 1 when a result is a failure.",
    )
    .argument("<file>", "file with the calls, or - for stdin")
    .addOption(jsonOption("print one JSON array instead of lines"))
    .addHelpText(
      "after",
      example(
        `echo '[{"id": "1", "type": "function", "function": {"name": "terminal", "arguments": "{\\"command\\": \\"pwd\\"}"}}]' |\n    moor batch - -e local`,
        "Answers one tool call of a chat model.",
      ),
    )
    .action(async (file: string, options: ToolOptions) => {
      const { batch } = await import("./batch.ts");
      finish(await batch(file, options));
    });

  addToolOptions(program.command("tools"))
    .summary("list the tools that a model sees, and why others are hidden")
    .description(
      "Lists the tools that a model sees. Environments are started for it, since only that shows whether they can be had. What is hidden, and why, goes to stderr, or into the JSON object.",
    )
    .addOption(
      new Option("--format <api>", `print the tools as this API takes them: ${FORMATS.join(", ")}`).argParser(
        (value) => oneOf("format", value, FORMATS),
      ),
    )
    .addOption(jsonOption("print {tools, hidden} as one JSON object"))
    .addHelpText("after", example("moor tools -e local --format openai", "Tools for OpenAI's chat API."))
    .action(async (options: ToolsOptions) => {
      const { listTools } = await import("./tools.ts");
      finish(await listTools(options));
    });
}

function addMcp(program: Command, finish: Finish): void {
  addToolOptions(program.command("mcp"))
    .summary("serve the tools over MCP, on stdin and stdout or over HTTP")
    .description(
      "Serves the tools to an MCP client on stdin and stdout. The first environment starts when the client lists the tools, others at their first call. When the client goes away everything is ended and removed. With --http it serves clients that come and go, until a signal; each must send the token.",
    )
    .option("--http <port>", "serve over streamable HTTP on this port instead; 0 takes a free one", port)
    .option(
      "--host <address>",
      "with --http: listen on this address, and answer to no other name",
      "127.0.0.1",
    )
    .option(
      "--token-env <name>",
      "with --http: variable that holds the token clients must send; one is made and shown where it is not set",
      "MOORAGE_MCP_TOKEN",
    )
    .addHelpText(
      "after",
      example(
        "moor mcp -e docker:node:24 --workspace .",
        "What a client's configuration names as its command: tools that work in a container on this folder.",
      ),
    )
    .action(async (options: McpOptions) => {
      const { mcp } = await import("./mcp.ts");
      finish(await mcp(options));
    });
}

function addSync(program: Command, finish: Finish): void {
  const sync = program
    .command("sync")
    .summary("mirror a folder of this host and an environment's workspace")
    .description(
      "Mirrors a folder of this host and an environment's workspace, for environments that cannot mount it. Files that .gitignore leaves out stay where they are, and what both sides changed stays on both and is reported. git's own folder goes there and never comes back. Ends with 1 when there are conflicts.",
    )
    .usage("COMMAND [OPTIONS]");
  const words = {
    push: "Makes the workspace what the folder is, except for what was changed there since the last time.",
    pull: "Makes the folder what the workspace is, except for what was changed here since the last time.",
    status: "Says what push and pull would do, and changes nothing.",
  } as const;
  // The keys of a constant object.
  for (const action of Object.keys(words) as (keyof typeof words)[]) {
    const command = addEnvironmentOptions(sync.command(action), false)
      .description(words[action])
      .argument("[folder]", "folder of this host", ".")
      .addOption(jsonOption("print the outcome as one JSON object"))
      .addHelpText(
        "after",
        example(`moor sync ${action} . -e docker+attach:web`, "With a container that runs already."),
      )
      .action(async (folder: string, options: SyncFolderOptions) => {
        const { syncFolder } = await import("./sync.ts");
        finish(await syncFolder(action, folder, options));
      });
    if (action !== "status") {
      const [kept, lost] = action === "push" ? ["folder", "workspace"] : ["workspace", "folder"];
      command.option(
        "--overwrite <path>",
        `settle a conflict at this path of the folder, or in it, by what the ${kept} has; what the ${lost} has is lost; repeatable`,
        collect,
      );
    }
  }
  addEnvironmentOptions(sync.command("watch"), false)
    .description("Mirrors both ways again and again, until a signal ends it.")
    .argument("[folder]", "folder of this host", ".")
    .addOption(jsonOption("print what each run did as a JSON object on a line of its own"))
    .addHelpText(
      "after",
      example("moor sync watch . -e ssh://me@host/folder", "While you edit here and an agent works there."),
    )
    .action(async (folder: string, options: EnvironmentOptions) => {
      const { watchSync } = await import("./sync.ts");
      finish(await watchSync(folder, options));
    });
}

function addCheckpoints(program: Command, finish: Finish): void {
  const checkpoints = program
    .command("checkpoints")
    .summary("list what can be undone, and undo it")
    .description(
      "Before a tool call that can change files, what it can change is kept on this host, out of the agent's reach. These commands list that, compare it with the present and bring it back.",
    )
    .usage("COMMAND [OPTIONS]");
  checkpoints
    .command("list")
    .description("Lists checkpoints, newest first.")
    .option("--workspace <folder>", "only those of this folder of the host, of folders in it and around it")
    .addOption(jsonOption("print them as one JSON object"))
    .addHelpText("after", example("moor checkpoints list --workspace .", "What can be undone here."))
    .action(async (options: ListOptions) => {
      const { listCheckpoints } = await import("./checkpoints.ts");
      finish(await listCheckpoints(options));
    });
  checkpoints
    .command("show")
    .description("Lists what a checkpoint knows of each path, and what it left out.")
    .argument("<id>", "checkpoint")
    .addOption(jsonOption("print it as one JSON object"))
    .addHelpText("after", example("moor checkpoints show cp-0123456789ab", "Paths, kinds and modes."))
    .action(async (id: string, options: JsonOption) => {
      const { showCheckpoint } = await import("./checkpoints.ts");
      finish(await showCheckpoint(id, options));
    });
  addEnvironmentOptions(checkpoints.command("create"))
    .description("Checkpoints the whole workspace now.")
    .argument("[reason]", "what stands in the list")
    .addOption(jsonOption("print it as one JSON object"))
    .addHelpText("after", example("moor checkpoints create 'before the merge' -e local", "Prints its id."))
    .action(async (reason: string | undefined, options: EnvironmentOptions) => {
      const { createCheckpoint } = await import("./checkpoints.ts");
      finish(await createCheckpoint(reason, options));
    });
  addEnvironmentOptions(checkpoints.command("diff"))
    .description(
      "Shows what was changed between a checkpoint and the present. Where no option says where to look, it is the folder of the host that the checkpoint is of.",
    )
    .argument("<id>", "checkpoint")
    .argument("[paths...]", "only these paths, relative to the workspace")
    .option("--other-place", "compare with another folder or environment than the checkpoint's own")
    .addOption(jsonOption("print {checkpoint, diff} as one JSON object"))
    .addHelpText("after", example("moor checkpoints diff cp-0123456789ab", "As a unified difference."))
    .action(async (id: string, paths: string[], options: DiffOptions) => {
      const { diffCheckpoint } = await import("./checkpoints.ts");
      finish(await diffCheckpoint(id, paths, options));
    });
  addEnvironmentOptions(checkpoints.command("restore"))
    .description(
      "Makes the workspace what it was at a checkpoint. The present is checkpointed first, so that this can be undone too. What no tool call made since stays and is listed. Where no option says where to work, it is the folder of the host that the checkpoint is of, all of it, and paths are relative to where you stand in it; any other place is refused. Ends with 1 when something could not be restored.",
    )
    .argument("<id>", "checkpoint")
    .argument("[paths...]", "only these paths and what is in them, relative to the workspace")
    .option(
      "--dry-run",
      "say what would be changed, and change nothing but by the mirror that --sync asks for",
    )
    .option("--remove-others", "also remove what came since by other hands than a tool call's")
    .option("--other-place", "restore into another folder or environment than the checkpoint's own")
    .addOption(jsonOption("print the outcome as one JSON object"))
    .addHelpText("after", example("moor checkpoints restore cp-0123456789ab src", "Only the folder src."))
    .action(async (id: string, paths: string[], options: RestoreOptions) => {
      const { restoreCheckpoint } = await import("./checkpoints.ts");
      finish(await restoreCheckpoint(id, paths, options));
    });
}

function addServe(program: Command, finish: Finish): void {
  program
    .command("serve")
    .summary("serve sandboxes over the Vercel Sandbox HTTP API")
    .description(
      "Offers the HTTP API of Vercel Sandbox, so that clients of @vercel/sandbox run their sandboxes here: each session is an environment of its own. What this server cannot do it refuses. Sandboxes and their snapshots end with it.",
    )
    .option("-e, --environment <spec>", "where sandboxes run; see `moor --help`")
    .option("--host <address>", "listen on this address", "127.0.0.1")
    .option("--port <number>", "listen on this port; 0 takes a free one", port, 8787)
    .option("--token-env <name>", "variable that holds the token clients must send", "MOORAGE_SERVE_TOKEN")
    .addOption(jsonOption("print the address as one JSON object once it can be reached"))
    .addHelpText(
      "after",
      example(
        "MOORAGE_SERVE_TOKEN=secret moor serve -e docker:node:24",
        "Sandboxes in containers, for clients on this machine.",
      ),
    )
    .action(async (options: ServeOptions) => {
      const { serve } = await import("./serve.ts");
      finish(await serve(options));
    });
}

/** What is there, what was left, what works. */
function addUpkeep(program: Command, finish: Finish): void {
  program
    .command("ps")
    .summary("list live environments and their background processes")
    .description(
      "Lists the environments of this user on this host that live now, and the background processes in them.",
    )
    .addOption(jsonOption("print them as one JSON object"))
    .addHelpText("after", example("moor ps --json", "The same for a program."))
    .action(async (options: JsonOption) => {
      const { ps } = await import("./ps.ts");
      finish(await ps(options));
    });

  program
    .command("reap")
    .summary("remove what dead owners left behind")
    .description(
      "Removes containers, processes and files whose owner, a moor or another program with this library, has died without cleaning up. What a living owner has stays, and so does what was made with `keep`, unless it is named. Ends with 1 when something could not be removed.",
    )
    .argument("[ids...]", "also remove these environments, which were to be kept; `moor ps` lists them")
    .addOption(jsonOption("print what was removed as one JSON object"))
    .addHelpText("after", example("moor reap", "After a crash, or a kill -9."))
    .action(async (ids: string[], options: JsonOption) => {
      const { reap } = await import("./reap.ts");
      finish(await reap(ids, options));
    });

  addToolOptions(program.command("doctor"))
    .summary("say what works here, and what to do about the rest")
    .description(
      "Checks each backend, each environment that is named and each tool: what works, why a tool is hidden, and what to do. Ends with 1 when a named environment does not work.",
    )
    .addOption(jsonOption("print the findings as one JSON object"))
    .addHelpText("after", example("moor doctor -e docker:node:24", "Whether this image can be used here."))
    .action(async (options: ToolOptions) => {
      const { doctor } = await import("./doctor.ts");
      finish(await doctor(options));
    });
}

function addImages(program: Command, finish: Finish): void {
  const images = program
    .command("images")
    .summary("build and list the images that come with this program")
    .description("Builds and lists the images that come with this program.")
    .usage("COMMAND [OPTIONS]");
  images
    .command("build")
    .description("Builds images, also where no registry can be reached: then from the packages of this host.")
    .argument("[names...]", "images to build; without a name all but those for tests")
    .addOption(jsonOption("print what was built as one JSON object"))
    .addHelpText("after", example("moor images build", "What is built already stays."))
    .action(async (names: string[], options: JsonOption) => {
      const { buildAll } = await import("./images.ts");
      finish(await buildAll(names, options));
    });
  images
    .command("list")
    .description("Lists the images and whether the engine has them.")
    .addOption(jsonOption("print them as one JSON object"))
    .addHelpText("after", example("moor images list", "What can be used without a build."))
    .action(async (options: JsonOption) => {
      const { list } = await import("./images.ts");
      finish(await list(options));
    });
}

function example(line: string, what: string): string {
  return `\nExample:\n  ${line}\n  ${what}`;
}
