/** How the demo looks on a terminal: one line per call, plain text where colours are not wanted. */
import type { WriteStream } from "node:tty";
import { styleText } from "node:util";
import type { CallResult, ToolCall } from "moorage";

export interface Screen {
  intro(text: string): void;
  title(text: string): void;
  note(text: string): void;
  call(number: number, call: ToolCall, result: CallResult): void;
  diff(patches: readonly string[]): void;
  /** @param failure null for success. @returns whether it is a success */
  verdict(place: string, failure: string | null): boolean;
  leftOut(place: string, reason: string): void;
}

type Style = Parameters<typeof styleText>[0];

export function terminalScreen(stream: WriteStream | NodeJS.WriteStream): Screen {
  const paint = (style: Style, text: string) => styleText(style, text, { stream });
  const line = (text = "") => stream.write(`${text}\n`);
  return {
    intro: (text) => line(text),
    title: (text) => line(`\n${paint("bold", text)}`),
    note: (text) => line(paint("dim", `     ${text}`)),
    call: (number, call, result) => {
      const asked = `${result.tool.padEnd(13)}${clip(argumentsOf(call), 46).padEnd(46)}`;
      const took = `${Math.round(result.durationMs)} ms`.padStart(8);
      const decision = result.ok ? paint("green", "ran    ") : paint("red", "failed ");
      line(`  ${number}  ${asked} ${paint("dim", took)}  ${decision} ${outcomeOf(result)}`);
    },
    diff: (patches) => {
      for (const patch of patches) {
        line();
        for (const text of patch.trimEnd().split("\n")) {
          if (text.startsWith("===") || text.startsWith("\\")) continue;
          const style = text.startsWith("+") ? "green" : text.startsWith("-") ? "red" : "dim";
          line(`     ${paint(style, text)}`);
        }
      }
    },
    verdict: (place, failure) => {
      line();
      if (failure === null) {
        line(paint("green", `  ${place}: green. The tests failed before the patch and pass after it.`));
      } else {
        line(paint("red", `  ${place}: not green, ${failure}.`));
      }
      return failure === null;
    },
    leftOut: (place, reason) => line(`\n${paint("yellow", `${place}: left out, ${reason}.`)}`),
  };
}

/** The values of a call's arguments, the longest texts left to the end. */
function argumentsOf({ arguments: text }: ToolCall): string {
  // Recorded calls carry their arguments as JSON of an object.
  const args = JSON.parse(String(text)) as Record<string, unknown>;
  return Object.entries(args)
    .filter(([key]) => !["mode", "timeout", "old_string"].includes(key))
    .map(([, value]) => String(value))
    .join("  ");
}

/** The one fact of a result that tells most. */
function outcomeOf(result: CallResult): string {
  if (!result.ok) return `${result.error.code}: ${result.error.message}`;
  const { content } = result;
  if ("exit_code" in content) return `exit code ${content.exit_code}${testCounts(String(content.output))}`;
  if (Array.isArray(content.matches)) return `${content.matches.length} matches`;
  if ("total_lines" in content) return `${content.total_lines} lines`;
  if (Array.isArray(content.files))
    return `${content.files.length} ${content.files.length === 1 ? "file" : "files"} changed`;
  if (Array.isArray(content.processes)) return `${content.processes.length} processes`;
  return clip(result.text, 60);
}

/** What Node's test runner counted, when the output is its. */
function testCounts(output: string): string {
  const passed = /^\W*pass (\d+)$/m.exec(output)?.[1];
  const failed = /^\W*fail (\d+)$/m.exec(output)?.[1];
  return passed && failed ? `, ${passed} passed, ${failed} failed` : "";
}

function clip(text: string, width: number): string {
  const flat = text.replaceAll(/\s+/g, " ");
  return flat.length <= width ? flat : `${flat.slice(0, width - 1)}…`;
}
