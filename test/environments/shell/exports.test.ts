import { execFileSync } from "node:child_process";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { parseExports, parseState } from "../../../environments/shell/exports.ts";
import { quote } from "../../../environments/shell/quote.ts";

const SHELLS: readonly (readonly string[])[] = [
  ["bash", "--norc"],
  ["bash", "--posix", "--norc"],
  ["dash"],
  ["busybox", "sh"],
];

/** What `shell` prints for variables with these values, read back. */
function roundTrip(shell: readonly string[], values: readonly Buffer[]): (Buffer | undefined)[] {
  const [file = "", ...args] = shell;
  const script = values
    .map((value, index) => `export V${index}=${quote(value.toString("latin1"))}`)
    .join("\n");
  const printed = execFileSync(file, args, {
    input: Buffer.from(`${script}\nexport -p\n`, "latin1"),
    env: { PATH: process.env.PATH },
  });
  const variables = parseExports(printed.toString("latin1"));
  return values.map((_, index) => {
    const value = variables.get(`V${index}`);
    return value === undefined ? undefined : Buffer.from(value, "latin1");
  });
}

describe.each(SHELLS.map((shell) => [shell.join(" "), shell] as const))(
  "parseExports() on %s",
  (_, shell) => {
    it("reads back any value byte for byte", () => {
      const byte = fc.oneof(
        fc.integer({ min: 1, max: 255 }),
        fc.constantFrom(...[..."\n\"'\\$`(){};=#!~ \t\r\x1b"].map((char) => char.charCodeAt(0))),
      );
      fc.assert(
        fc.property(
          fc.array(fc.array(byte, { maxLength: 30 }), { minLength: 1, maxLength: 12 }),
          (values) => {
            const wanted = values.map((value) => Buffer.from(value));
            expect(roundTrip(shell, wanted)).toEqual(wanted);
          },
        ),
        { numRuns: 25 },
      );
    });

    it("takes a value that looks like an export for a value", () => {
      const value = Buffer.from('x\nexport EVIL="1"\ndeclare -x EVIL="2"');
      expect(roundTrip(shell, [value])).toEqual([value]);
    });
  },
);

describe("parseState()", () => {
  it("tells the parts apart that bash prints one after the other", () => {
    const script = `set -o posix; shopt -s expand_aliases
export A=$'1\\nalias x=y'
alias ll='ls -l' tricky='echo '\\''a
declare -f fake'\\'''
set +o posix
cd() { builtin cd "$@"; }
say() { echo "alias no=1"; }
export -f say
export -p; alias -p; declare -F; declare -f`;
    const printed = execFileSync("bash", ["--norc"], {
      input: script,
      env: { PATH: process.env.PATH },
    }).toString("latin1");
    const state = parseState(printed);
    expect(state.variables.get("A")).toBe("1\nalias x=y");
    expect([...state.aliases]).toEqual([
      ["ll", "ls -l"],
      ["tricky", "echo 'a\ndeclare -f fake'"],
    ]);
    expect(state.exportedFunctions).toEqual(["say"]);
    expect(state.functions.startsWith("cd () \n")).toBe(true);
    expect(state.functions).toContain('echo "alias no=1"');
  });
});
