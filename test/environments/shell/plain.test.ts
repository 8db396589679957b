import { execFileSync } from "node:child_process";
import { describe, expect, it } from "vitest";
import { isPlain } from "../../../environments/shell/plain.ts";
import { quote } from "../../../environments/shell/quote.ts";
import { emptyState } from "../../../environments/shell/state.ts";
import { pickerFrom, randomFrom } from "../tree/picture.ts";

const state = emptyState("/");

/** What a session keeps, as bash and POSIX sh print it. */
const SNAPSHOT = { bash: "export -p; alias; declare -F; declare -f; pwd", sh: "export -p; alias; pwd" };

/** Words that change a session, alone or in the wrong place, among ones that never do. */
const WORDS = [
  ..."echo ls true false pwd cat ./x /bin/echo git -la a.b a/b ~ * ? 1 x=1 A=2".split(" "),
  ..."cd / .. export A B=3 unset HOME eval alias l=ls unalias -a set -a -- source . exec exit read".split(
    " ",
  ),
  ..."printf -v time command builtin env ! if then fi { } ( ) (( )) [[ ]] function f f() coproc".split(" "),
  ...["$A", "$HOME", "${A:=1}", "$((A=1))", "$[A=1]", "$(cd /)", "`cd /`", '"$A b"', '"${A:=2}"', "'a;cd /'"],
  ...[
    '"a',
    "'",
    "\\",
    "\\cd",
    "#",
    ">/dev/null",
    "2>&1",
    "<",
    "<<E",
    "<(cd /)",
    "&>x",
    "{A}>x",
    "=",
    "+=",
    "%1",
  ],
];
const OPERATORS = ["; ", " && ", " || ", " | ", " & ", "\n", " ", " ", " ", " "];

describe("isPlain()", () => {
  it.each([
    "echo hi",
    "git status --short",
    "ls -la src/*.ts | head -5",
    "npm test 2>&1 | tail -n 20",
    "rg -n 'a (b|c)' src && echo \"found in $HOME\" || false",
    "make -j2 VERBOSE=1 >build.log",
    "echo $PATH;\npwd",
  ])("takes %j for one that changes nothing", (command) => {
    expect(isPlain(command, state)).toBe(true);
  });

  it.each([
    "cd /",
    "ls; cd /",
    "A=1",
    "A=1 ls",
    "export A=1",
    "echo ${A:=1}",
    "echo $((A=1))",
    "echo $(ls)",
    'echo "`ls`"',
    "echo a\\\ncd /",
    "f() { :; }",
    "time cd /",
    "! cd /",
    ". ./x",
    "(cd /)",
    "echo a & cd /",
    "trap 'cd /' EXIT",
    "printf -v PATH x",
    "test -v 'a[b=1]'",
    "if true; then cd /; fi",
    "cat <<E\nE",
    "2>/dev/null cd /",
    "ls; 10<x export A=1",
    "",
    "  ",
    "# ls",
  ])("takes no chance with %j", (command) => {
    expect(isPlain(command, state)).toBe(false);
  });

  it("takes no chance where a name may be the user's own", () => {
    expect(isPlain("ls", { ...state, functions: "ls () { cd /; }" })).toBe(false);
    expect(isPlain("ls", { ...state, aliases: new Map([["ls", "cd"]]) })).toBe(false);
    expect(isPlain("pwd -P", { ...state, variables: new Map([["POSIXLY_CORRECT", "y"]]) })).toBe(false);
  });

  it("takes only what bash can read as a command of its own", () => {
    const below = randomFrom(2);
    const pick = pickerFrom(below);
    const pieces = [
      ...WORDS,
      ..."> >> < & &1 2 12 4> ; | || && ^ , @".split(" "),
      " ",
      " ",
      " ",
      "\n",
      "\t",
      "\r",
    ];
    const commands = new Set<string>();
    while (commands.size < 2_000) {
      let command = "echo ";
      while (below(10) < 8) command += pick(pieces);
      if (isPlain(command, state)) commands.add(command);
    }
    const read = `while IFS= read -r -d '' c; do eval "f() { $c
}" || printf '%s\\0' "$c"; done`;
    const input = [...commands].map((command) => `${command}\0`).join("");
    expect(execFileSync("/bin/bash", ["-c", read], { input, encoding: "utf8" })).toBe("");
  });

  it.each(["bash", "sh"] as const)("is right of every mixture of words that %s can run", (shell) => {
    const below = randomFrom(1);
    const pick = pickerFrom(below);
    const commands = new Set<string>();
    while (commands.size < 60) {
      let command = pick(WORDS);
      while (below(10) < 7) command += pick(OPERATORS) + pick(WORDS);
      if (isPlain(command, state)) commands.add(command);
    }
    const script = [...commands].map(
      (command) =>
        `( cd /tmp; b=$(${SNAPSHOT[shell]}); eval ${quote(command)} >/dev/null 2>&1 </dev/null; a=$(${SNAPSHOT[shell]}); [ "$b" = "$a" ] || printf '%s\\0' ${quote(command)} )`,
    );
    // No program of these names can be reached, so that only what the shell itself does counts.
    const env = { PATH: "/nowhere", HOME: "/tmp", A: "a", OLDPWD: "/" };
    const changed = execFileSync(`/bin/${shell}`, ["-s"], {
      input: script.join("\n"),
      env,
      encoding: "utf8",
    });
    expect(changed).toBe("");
  });
});
