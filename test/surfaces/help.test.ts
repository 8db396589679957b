import { execFileSync } from "node:child_process";
import type { Command } from "commander";
import { describe, expect, it } from "vitest";
import { createProgram } from "../../src/cli/program.ts";
import { MOOR, moor, privateHome, temporaryFolder } from "./moor.ts";

const program = createProgram(() => {});
const commands = commandsOf(program);

/** All commands below this one with words of their own, depth first. */
function commandsOf(command: Command): readonly Command[] {
  return command.commands
    .filter((each) => each.name() !== "help")
    .flatMap((each) => [each, ...commandsOf(each)]);
}

function wordsOf(command: Command): readonly string[] {
  return command.parent ? [...wordsOf(command.parent), command.name()] : [];
}

async function helpOf(words: readonly string[]): Promise<string> {
  const { exitCode, stdout, stderr } = await moor([...words, "--help"]);
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
  return stdout.trimEnd();
}

/** The reference page, from what the command itself says. */
async function writePage(): Promise<string> {
  const sections = [
    "# The command line",
    "What `moor --help` and `moor COMMAND --help` print.",
    fence(await helpOf([])),
  ];
  for (const command of commands) {
    const words = wordsOf(command);
    sections.push(`## moor ${words.join(" ")}`, fence(await helpOf(words)));
  }
  return `${sections.join("\n\n")}\n`;
}

function fence(text: string): string {
  return `\`\`\`text\n${text}\n\`\`\``;
}

describe("--help", () => {
  it("is what docs/cli.md says", async () => {
    await expect(await writePage()).toMatchFileSnapshot("../../docs/cli.md");
  });

  it.each(
    commands
      .filter(({ commands: inner }) => inner.length === 0)
      .map((command) => [wordsOf(command).join(" ")]),
  )("of %s explains every option and has one worked example", async (words) => {
    const help = await helpOf(words.split(" "));
    expect(help.match(/^Examples?:$/gm)).toHaveLength(1);
    expect(help).toContain(`moor ${words}`);
    for (const line of help.split("\n").filter((each) => /^ {2}-/.test(each))) {
      expect(line).toMatch(/^ {2}-\S.* {2,}\S/);
    }
  });

  it.each([["exec"], ["call"], ["batch"], ["tools"], ["ps"], ["reap"]])(
    "of %s has an example that works",
    { tags: ["slow"] },
    async (name) => {
      const help = await helpOf([name]);
      const [, line = ""] = /^Example:\n((?: {2,}.*\n)*? {2}.*?)\n {2}[A-Z]/m.exec(`${help}\n`) ?? [];
      expect(line).toContain(`moor ${name}`);
      execFileSync("sh", ["-c", line.replaceAll("moor ", `'${MOOR}' `)], {
        env: { ...process.env, ...privateHome() },
        cwd: temporaryFolder(),
        stdio: "pipe",
      });
    },
  );
});
