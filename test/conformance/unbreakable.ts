/** Commands that try to break the session's shell, each asked for its own answer and for the session's after it. */
import { expect } from "vitest";
import type { ExecResult } from "../../environments/base.ts";
import { type Case, type Cases, died, inBash, result } from "./support.ts";

type Expected = Partial<ExecResult>;

/**
 * Runs `script`, expects its answer, and then asks the session, by programs alone, for the variable and the folder
 * of before and for a right exit code: the script may have redefined every word of the shell, and that is kept.
 */
function survives(script: string, expected: Expected = {}): Case {
  return async ({ environment }) => {
    await using session = await environment.openSession();
    await session.exec("export KEPT='of before'; cd /");
    expect(await session.exec(script, { timeoutMs: 20_000 }), script).toMatchObject(expected);
    for (let call = 0; call < 2; call += 1) {
      expect(await session.exec("/bin/sh -c 'echo \"$KEPT\"; pwd; exit 7'"), `after ${script}`).toEqual(
        result({ exitCode: 7, output: "of before\n/\n", cwd: "/" }),
      );
    }
  };
}

/** As `survives`, for several scripts with one expectation. */
function allSurvive(scripts: readonly string[], expected: Expected = {}): Case {
  return async (context) => {
    for (const script of scripts) await survives(script, expected)(context);
  };
}

const anyText: string = expect.any(String);
const FAILED: Expected = {
  exitCode: expect.toSatisfy((code: unknown) => code !== 0 && code !== null, "a failure"),
};

export const unbreakable = {
  "`exit` ends the call alone, with its code": allSurvive(
    ["echo a; exit 3; echo b", "f() { exit 3; }; echo a; f; echo b"],
    {
      exitCode: 3,
      output: "a\n",
    },
  ),
  "`exit` without a code gives the last one": survives("false; exit", { exitCode: 1, output: "" }),
  "`exec PROGRAM` gives the program's answer (SH-15)": survives("exec sh -c 'echo in; exit 9'", {
    exitCode: 9,
    output: "in\n",
  }),
  "`exec true` is a success, and keeps the folder of before (SH-15)": allSurvive(
    ["exec true", "cd /tmp; exec true"],
    { exitCode: 0, output: "" },
  ),
  "`exec` of a missing program is a failure": survives("exec /nowhere/program; echo no", { exitCode: 127 }),
  "`set -e` ends the call at the first failure": survives("set -eu; echo a; false; echo b", {
    exitCode: 1,
    output: "a\n",
  }),
  "`set -euo pipefail` ends the call at a failing pipe": inBash(
    survives("set -euo pipefail; echo a; false | true; echo b", { exitCode: 1, output: "a\n" }),
  ),
  "a restricted shell keeps its exit code, its output and what it exports": inBash(
    async ({ environment }) => {
      await using session = await environment.openSession();
      for (const [end, exitCode] of [
        ["(exit 5)", 5],
        ["exit 6", 6],
      ] as const) {
        expect(await session.exec(`echo a; export MADE=${exitCode}; set -r; cd /; ${end}`)).toMatchObject({
          exitCode,
          output: expect.stringMatching(/^a\n.*cd: restricted\n$/),
        });
        expect(await session.exec('echo "$MADE"; cd /; pwd; echo x >/dev/null')).toEqual(
          result({ output: `${exitCode}\n/\n`, cwd: "/" }),
        );
      }
    },
  ),
  "`set -u` ends the call at an unset name": survives("set -u; echo a; echo $nope; echo b", FAILED),
  // What a subshell does after it killed the shell that `$$` names is its own: some milliseconds may be left to it.
  "`kill -9 $$` is a death by signal 9 (SH-16)": survives("echo a; kill -9 $$; sleep 5; echo b", {
    ...died(137, "SIGKILL"),
    output: "a\n",
    notes: expect.any(Array),
  }),
  "`kill -TERM $$` is a death by signal 15": survives("echo a; kill -TERM $$; sleep 5; echo b", {
    exitCode: 143,
  }),
  "`kill -HUP $$` is a death by signal 1": survives("kill -HUP $$; sleep 5", { exitCode: 129 }),
  "`kill -9 0` ends the call and the session goes on": survives("kill -9 0; sleep 5", { exitCode: 137 }),
  "a killed subshell shell is a death by signal": inBash(
    survives("kill -9 $BASHPID; echo b", { exitCode: 137 }),
  ),
  "unended quotes are syntax errors (SH-10)": allSurvive(
    ['echo "abc', "echo 'abc", "echo `ls", 'echo "$(ls"'],
    {
      exitCode: 2,
      // The shell's message, and no word of the script around the command.
      output: expect.stringMatching(/^(?!.*(?:moor|builtin)).+\n$/s),
    },
  ),
  "unended constructs are syntax errors (SH-11)": allSurvive(
    [
      "if true; then",
      "echo $(ls",
      "while :; do",
      "case x in",
      "{ echo a",
      "( echo a",
      "f() {",
      "for i in 1; do echo",
    ],
    { exitCode: 2, output: expect.stringMatching(/./) },
  ),
  "stray ends are syntax errors": allSurvive(
    [")", "fi", "done", "}", ";;", "&& true", "| cat", "echo a )", "esac"],
    {
      exitCode: 2,
      output: expect.stringMatching(/./),
    },
  ),
  "a bad expansion is a failure": allSurvive(
    ["echo ${", "echo ${a b}", "echo $((1/0))", "echo $((1 +))"],
    FAILED,
  ),
  "an unended here-document is its text (SH-11)": survives("cat <<EOF\nhello", {
    exitCode: 0,
    output: expect.stringContaining("hello"),
  }),
  "a here-document may end with the command (SH-07)": async (context) => {
    await survives("cat <<'EOF'\nhello\nEOF", { exitCode: 0, output: "hello\n" })(context);
    await survives("cat <<-EOF\n\thello\n\tEOF", { exitCode: 0, output: "hello\n" })(context);
    await survives("sh - <<'S'\necho in\nexit 4\nS", { exitCode: 4, output: "in\n" })(context);
  },
  "a comment may end the command (SH-08)": allSurvive(
    ["echo hi # it's a note", "echo hi # (", "echo hi # \\"],
    {
      exitCode: 0,
      output: "hi\n",
    },
  ),
  "a backslash may end the command": survives("echo a \\", {
    exitCode: 0,
    output: expect.stringMatching(/^a ?\\?\n$/),
  }),
  "an ampersand may end the command": survives(":&", { exitCode: 0, output: "" }),
  "carriage returns are bytes like others": survives("printf '%s' 'a\r\nb\r'", {
    output: "a\r\nb\r",
  }),
  "a command may begin with a hyphen": survives("-x foo", {
    exitCode: 127,
    output: expect.stringContaining("-x"),
  }),
  "stray `return`, `break` and `continue` break nothing": allSurvive(
    ["break; continue; echo on", "echo on; return 0; true"],
    {
      exitCode: 0,
      output: expect.stringContaining("on\n"),
    },
  ),
  "PATH may lead nowhere (SH-24)": async ({ environment }) => {
    await using session = await environment.openSession();
    await session.exec("export PATH=/nowhere");
    expect(await session.exec('echo "hi $PATH"')).toEqual(result({ output: "hi /nowhere\n" }));
    expect(await session.exec("unset PATH")).toEqual(result());
    expect(await session.exec("export PATH=/usr/bin:/bin; ls -d /")).toEqual(result({ output: "/\n" }));
    expect(await session.exec("ls -d /")).toEqual(result({ output: "/\n" }));
  },
  "names of the shell's own may be unset": allSurvive(
    ["unset HOME", "unset PWD OLDPWD", "unset IFS", "unset PS1 PS2 PS4", "unset TERM LANG"],
    {
      exitCode: 0,
    },
  ),
  "IFS may be anything": async (context) => {
    for (const ifs of ["''", ":", "0123456789", "/", "abcdefghijklmnopqrstuvwxyz"]) {
      await survives(`export IFS=${ifs}`, { exitCode: 0 })(context);
    }
  },
  "words of the shell may be redefined (SH-20)": async (context) => {
    const words = [
      "cd",
      "printf",
      "echo",
      "test",
      "read",
      "kill",
      "wait",
      "pwd",
      "command",
      "true",
      "umask",
      "alias",
      "type",
    ];
    for (const word of words) await survives(`${word}() { return 1; }`, { exitCode: 0 })(context);
  },
  "special words of the shell may be redefined": inBash(async (context) => {
    const words = [
      "exit",
      "eval",
      "builtin",
      "trap",
      "export",
      "return",
      "[",
      "unset",
      "set",
      "declare",
      "source",
      ".",
      ":",
      "exec",
      "local",
      "shopt",
      "readonly",
      "compgen",
      "unalias",
      "enable",
      "typeset",
    ];
    for (const word of words) await survives(`${word}() { return 1; }`, { exitCode: 0 })(context);
  }),
  "redefined words are the user's in later calls": inBash(async ({ environment }) => {
    await using session = await environment.openSession();
    await session.exec('cd() { builtin cd "$@"; return 1; }; export -f cd; printf() { echo mine; }');
    expect(await session.exec("cd /; echo $?; printf x")).toEqual(result({ output: "1\nmine\n", cwd: "/" }));
    expect(await session.exec("pwd")).toEqual(result({ output: "/\n", cwd: "/" }));
  }),
  "words of the shell may be aliases": inBash(async (context) => {
    await survives(
      "alias cd=false printf=false exit=false eval=false builtin=false command=false trap=false export=false '[=false' test=false declare=false return=false if=false alias=false unalias=false set=false exec=false",
      { exitCode: 0 },
    )(context);
  }),
  "builtins may be switched off": inBash(
    survives("enable -n printf echo cd eval trap export declare test [ command read", { exitCode: 0 }),
  ),
  "a trap on EXIT runs once and may set the code (SH-49)": async (context) => {
    await survives("trap 'echo bye' EXIT; echo hi", { exitCode: 0, output: "hi\nbye\n" })(context);
    await survives("trap 'exit 5' EXIT; exit 3", { exitCode: 5, output: "" })(context);
    await survives("trap - EXIT; echo hi", { exitCode: 0, output: "hi\n" })(context);
  },
  "traps on DEBUG and ERR see the user's commands only (SH-49)": inBash(async (context) => {
    await survives("trap 'echo bye' EXIT; trap 'echo dbg' DEBUG; echo hi", {
      exitCode: 0,
      output: expect.stringMatching(/^dbg\nhi\n(dbg\n)?bye\n$/),
    })(context);
    await survives("trap 'echo err' ERR; false; true", { exitCode: 0, output: "err\n" })(context);
    await survives("set -ET; trap 'echo \"at $BASH_COMMAND\"' DEBUG; true", {
      exitCode: 0,
      output: "at true\n",
    })(context);
    await survives("trap 'echo ret' RETURN; f() { :; }; f", { exitCode: 0, output: "" })(context);
  }),
  "the list of traps holds none of ours": survives("trap; echo end", {
    exitCode: 0,
    output: "end\n",
  }),
  "output of the shell may go nowhere": survives("exec >/dev/null 2>&1; echo lost", {
    exitCode: 0,
    output: "",
  }),
  "stderr may go to stdout": survives("exec 2>&1; echo a; echo b >&2; exit 4", {
    exitCode: 4,
    output: "a\nb\n",
  }),
  "descriptors 0 to 9 may be closed": async (context) => {
    await survives('for fd in 3 4 5 6 7 8 9; do eval "exec $fd>&-"; done; echo on; exit 6', {
      exitCode: 6,
      output: "on\n",
    })(context);
    await survives("exec 0<&- 1>&- 2>&-; exit 6", { exitCode: 6, output: "" })(context);
    await survives("exec 0<&- 1>&- 2>&- 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; exit 6", {
      exitCode: 6,
      output: "",
    })(context);
  },
  "descriptors 10 to 255 may be closed": inBash(
    survives('for ((fd = 3; fd < 256; fd++)); do eval "exec $fd>&-"; done; exit 6', {
      exitCode: 6,
      output: "",
    }),
  ),
  "writing to a closed stdout is the command's failure": survives("exec 1>&-; echo x; exit $?", {
    exitCode: 1,
    output: anyText,
  }),
  "`set -m` changes nothing": survives("set -m; sleep 0 & wait; echo on", {
    exitCode: 0,
    output: expect.stringContaining("on\n"),
  }),
  "`set -n` ends the call quietly": survives("set -n\necho no", { exitCode: 0, output: "" }),
  "`set -x` traces the user's commands only": survives("set -x; echo hi", {
    exitCode: 0,
    output: expect.stringMatching(/^\++ echo hi\nhi\n$/),
  }),
  "`set -v` shows nothing of ours": survives("set -v; echo hi", { exitCode: 0, output: "hi\n" }),
  "`set -f`, `-C`, `-a`, `-b` change nothing": allSurvive(["set -f", "set -C", "set -a", "set -b"], {
    exitCode: 0,
    output: "",
  }),
  "bash's options change nothing": inBash(
    allSurvive(
      [
        "set -o posix",
        "set -k",
        "set -T",
        "set -E",
        "set -B",
        "set -H",
        "set -P",
        "set -t",
        "set -p",
        "shopt -s expand_aliases extglob failglob nullglob dotglob globstar lastpipe xpg_echo nocasematch nocaseglob",
        "shopt -s compat31",
      ],
      { exitCode: 0, output: "" },
    ),
  ),
  "names that steer a shell may be exported": allSurvive(
    [
      "export POSIXLY_CORRECT=1",
      "export ENV=/nowhere BASH_ENV=/nowhere",
      "export PS4='$(echo ps4)'",
      "export CDPATH=/usr:/etc",
      "export TMOUT=1",
      "export GLOBIGNORE='*'",
      "export PROMPT_COMMAND='echo prompt'",
      "export HISTFILE=/nowhere",
    ],
    { exitCode: 0, output: "" },
  ),
  "names that steer bash may be unset or locked": inBash(
    allSurvive(
      [
        "unset BASH_VERSION BASH BASHPID SHELLOPTS 2>/dev/null; true",
        "readonly TMOUT=1",
        "readonly PATH HOME PWD OLDPWD IFS",
        "readonly -f 2>/dev/null; true",
        "declare -r _x=1 REPLY=2",
      ],
      { exitCode: 0, output: "" },
    ),
  ),
  "few descriptors, no file size and no permissions change nothing": allSurvive(
    ["ulimit -n 16", "ulimit -f 0", "umask 777", "ulimit -c 0"],
    {
      exitCode: 0,
      output: "",
    },
  ),
  "unbounded recursion is a failure of the call": survives("ulimit -s 512; f() { f; }; f", FAILED),
  "`wait` has nothing to wait for": survives("wait; echo on", { exitCode: 0, output: "on\n" }),
  "a shell in the shell reads nothing of ours": allSurvive(
    ["sh", "sh -s", "cat", "cat -", "exec cat", ". /dev/null"],
    { exitCode: 0, output: "" },
  ),
  "200 nested subshells answer": survives(`${"( ".repeat(200)}echo deep${")".repeat(200)}`, {
    exitCode: 0,
    output: "deep\n",
  }),
} satisfies Cases;
