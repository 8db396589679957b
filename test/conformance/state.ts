/** What a session keeps from call to call, and what it does not. */
import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import type { BaseEnvironment, ExecResult } from "../../environments/base.ts";
import { type Cases, inBash, result, scratch } from "./support.ts";

/** Runs the commands in a session of their own and gives the last result. */
async function inOrder(environment: BaseEnvironment, ...commands: string[]): Promise<ExecResult> {
  await using session = await environment.openSession();
  let last = result();
  for (const command of commands) last = await session.exec(command);
  return last;
}

export const state = {
  "a command has the locale that a program of its has": async ({ environment }) => {
    await using session = await environment.openSession();
    const script = "x=ä; echo ${#x} ${LC_ALL-unset} ${LC_CTYPE-unset} ${LANG-unset}";
    const expected = await session.exec(`"\${BASH:-sh}" -c '${script}'`);
    for (let call = 0; call < 3; call += 1) {
      expect(await session.exec(script)).toEqual(result({ output: expected.output }));
      // The next subshell is forked by then.
      await delay(20);
    }
    expect(await session.exec("env | grep -c ^LC_ALL=")).toMatchObject({
      output: expected.output.split(" ")[1] === "unset" ? "0\n" : "1\n",
    });
  },
  "the working directory is kept": async ({ environment }) => {
    const folder = await scratch(environment);
    expect(await inOrder(environment, `cd ${folder}`, "true", "pwd")).toEqual(
      result({ output: `${folder}\n`, cwd: folder }),
    );
  },
  "working directories with awkward names are kept": async ({ environment }) => {
    const folder = await scratch(environment);
    await using session = await environment.openSession({ cwd: folder });
    for (const name of [
      "a b",
      "new\nline",
      "end\n",
      "-",
      "--",
      "-P",
      "q'uo\"te",
      "g*[b]?",
      "ünï😀",
      "$(id)",
      "\\",
    ]) {
      const path = `${folder}/${name}`;
      await environment.files.mkdir(path);
      await session.exec('cd "./$NAME"', { env: { NAME: name }, cwd: folder });
      expect(await session.exec("pwd")).toEqual(result({ output: expect.any(String) }));
      expect(
        await session.exec('cd "$FOLDER"; cd "./$NAME"', { env: { FOLDER: folder, NAME: name } }),
      ).toEqual(result({ cwd: path }));
      expect(await session.exec("pwd")).toEqual(result({ output: `${path}\n`, cwd: path }));
      expect(session.cwd).toBe(path);
    }
  },
  "a value of PWD does not move the session": async ({ environment }) => {
    await using session = await environment.openSession();
    expect(await session.exec("cd /; PWD=/etc; cd tmp; OLDPWD=/; PWD=/etc")).toEqual(result({ cwd: "/tmp" }));
    for (const value of ["rel", "", "-", "/etc"]) {
      expect(await session.exec(`PWD=${value}`)).toEqual(result({ cwd: "/tmp" }));
      expect(await session.exec("ls -d .; pwd", { timeoutMs: 20_000 })).toEqual(
        result({ output: ".\n/tmp\n", cwd: "/tmp" }),
      );
    }
  },
  "`cd -` returns to the folder before": async ({ environment }) => {
    const folder = await scratch(environment);
    expect(await inOrder(environment, `cd ${folder}`, "cd /", "cd - >/dev/null; pwd")).toMatchObject({
      output: `${folder}\n`,
    });
  },
  "a folder reached by a link keeps its name": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec("mkdir real; ln -s real link", { cwd: folder });
    expect(await inOrder(environment, `cd ${folder}/link`, "pwd; pwd -P")).toMatchObject({
      output: `${folder}/link\n${folder}/real\n`,
    });
  },
  "a deleted folder gives way to its nearest ancestor, with a note (SH-17)": async ({ environment }) => {
    const folder = await scratch(environment);
    await using session = await environment.openSession();
    await session.exec(`mkdir -p ${folder}/a/b/c; cd ${folder}/a/b/c; export KEPT=1`);
    await session.exec(`rm -rf ${folder}/a/b`);
    expect(await session.exec('pwd; echo "hi $KEPT"')).toEqual(
      result({
        output: `${folder}/a\nhi 1\n`,
        cwd: `${folder}/a`,
        notes: [expect.stringContaining(`${folder}/a/b/c`)],
      }),
    );
    expect(await session.exec("pwd")).toEqual(result({ output: `${folder}/a\n`, cwd: `${folder}/a` }));
  },
  "a folder deleted by its own call gives way as well": async ({ environment }) => {
    const folder = await scratch(environment);
    await using session = await environment.openSession();
    expect(
      await session.exec(`mkdir ${folder}/w && cd ${folder}/w && rm -rf ${folder}/w && echo gone`),
    ).toMatchObject({ exitCode: 0, output: "gone\n" });
    expect(await session.exec("pwd; echo hi")).toMatchObject({ exitCode: 0, output: `${folder}\nhi\n` });
  },
  "a folder that another session removed gives way as well": async ({ environment }) => {
    const folder = await scratch(environment);
    await using session = await environment.openSession();
    await session.exec(`mkdir ${folder}/w && cd ${folder}/w`);
    await environment.exec(`mv ${folder}/w ${folder}/moved`);
    expect(await session.exec("echo hi")).toMatchObject({ exitCode: 0, output: "hi\n" });
  },
  "exported variables are kept, for programs too": async ({ environment }) => {
    expect(
      await inOrder(environment, "export A=1 B; B=2", "export A=3", 'echo "$A $B"; sh -c \'echo "$A $B"\''),
    ).toEqual(result({ output: "3 2\n3 2\n" }));
  },
  "a new value of an exported variable is kept": async ({ environment }) => {
    expect(await inOrder(environment, "export A=1", "A=2", "sh -c 'echo $A'")).toEqual(
      result({ output: "2\n" }),
    );
  },
  "awkward values are kept exactly (SH-23)": async ({ environment }) => {
    const values = [
      'x\ny "q" \\ $HOME',
      "",
      " lead and trail ",
      "ends with newline\n",
      "\n\n",
      "'",
      "\\",
      "\t\x01\x1b[31m\x7f",
      "é漢😀",
      "`id` $(id) ${A}",
      "() { :; }; echo shellshock",
      "a=b;c&d|e>f",
      "-n",
      "%s%d\\n",
    ];
    await using session = await environment.openSession();
    for (const value of values) {
      await session.exec('export KEPT="$GIVEN"', { env: { GIVEN: value } });
      await session.exec("true");
      expect(await session.exec('printf %s "$KEPT"; sh -c \'printf "|%s" "${KEPT-unset}"\'')).toEqual(
        result({ output: `${value}|${value}` }),
      );
    }
  },
  "bytes that are no UTF-8 are kept in values": async ({ environment }) => {
    expect(
      await inOrder(
        environment,
        "export RAW=\"$(printf 'a\\377\\200b')\"",
        "true",
        'printf %s "$RAW" | od -An -tx1',
      ),
    ).toMatchObject({ output: " 61 ff 80 62\n" });
  },
  "an unset variable stays unset": async ({ environment }) => {
    await using session = await environment.openSession({ env: { GIVEN: "1" } });
    await session.exec("export A=1");
    await session.exec("unset A GIVEN HOME");
    expect(await session.exec('echo "${A-unset} ${GIVEN-unset} ${HOME-unset}"')).toEqual(
      result({ output: "unset unset unset\n" }),
    );
  },
  "a variable that is no longer exported is not kept": inBash(async ({ environment }) => {
    expect(await inOrder(environment, "export A=1", "export -n A", 'echo "${A-unset}"')).toEqual(
      result({ output: "unset\n" }),
    );
  }),
  "unexported variables are not kept": async ({ environment }) => {
    expect(await inOrder(environment, "A=1; B=2 true", 'echo "${A-unset} ${B-unset}"')).toEqual(
      result({ output: "unset unset\n" }),
    );
  },
  "an exported readonly variable keeps its value without noise": async ({ environment }) => {
    await using session = await environment.openSession();
    await session.exec("export R=1; readonly R; readonly S=2");
    for (let call = 0; call < 3; call += 1) {
      expect(await session.exec('echo "$R ${S-unset}"')).toEqual(result({ output: "1 unset\n" }));
    }
  },
  "exported names of the shell's own are kept without noise": inBash(async ({ environment }) => {
    await using session = await environment.openSession();
    await session.exec("export SHELLOPTS BASHOPTS UID EUID PPID BASH_VERSINFO GROUPS RANDOM LINENO SECONDS");
    for (let call = 0; call < 2; call += 1) {
      expect(await session.exec("echo clean")).toEqual(result({ output: "clean\n" }));
    }
  }),
  "a value of 200 KB breaks nothing, and is kept or told (SH-25)": async ({ environment }) => {
    await using session = await environment.openSession();
    const first = await session.exec(
      'x=0123456789; for i in 1 2 3 4 5; do x="$x$x$x$x$x$x$x"; done; export BIG="$x"; export SMALL=s',
    );
    const second = await session.exec('echo "${#BIG} $SMALL"');
    expect(second).toMatchObject({ exitCode: 0, output: expect.stringMatching(/^(168070|0) s\n$/) });
    if (!second.output.startsWith("168070")) {
      expect([...first.notes, ...second.notes].join("\n")).toContain("BIG");
    }
    expect(await session.exec("ls -d /")).toMatchObject({ exitCode: 0, output: "/\n" });
    await session.exec('BIG="$BIG$BIG"');
    expect((await session.exec('echo "${#BIG}"; BIG=short; exit 0')).output).toBe("336140\n");
    expect((await session.exec('echo "$BIG"; sh -c \'echo "$BIG"\'')).output).toBe("short\nshort\n");
    await session.exec('x=0123456789; for i in 1 2 3 4 5; do x="$x$x$x$x$x$x$x"; done; export BIG="$x"');
    await session.exec("unset BIG");
    expect((await session.exec('echo "${BIG-unset}"')).output).toBe("unset\n");
  },
  "changes in a subshell are not kept": async ({ environment }) => {
    expect(await inOrder(environment, "(cd /; export A=1)", 'pwd; echo "${A-unset}"')).toEqual(
      result({ output: `${environment.workspace}\nunset\n` }),
    );
  },
  "state before a failing end is kept (SH-12)": async ({ environment }) => {
    for (const end of [
      "exit 3",
      "set -e; false",
      "false",
      "exit",
      "(exit 4)",
      "nosuchprogram",
      "set -u; echo $nope",
    ]) {
      expect(await inOrder(environment, `cd /; export A=1; ${end}`, 'pwd; echo "$A"')).toEqual(
        result({ output: "/\n1\n", cwd: "/" }),
      );
    }
  },
  "functions are kept": inBash(async ({ environment }) => {
    const define =
      'greet() {\n  local who=$1\n  cat <<EOF\nhello $who\'s "friend"\nEOF\n}\nmy-func.x() { echo odd; }';
    expect(await inOrder(environment, define, "true", "greet world; my-func.x")).toEqual(
      result({ output: 'hello world\'s "friend"\nodd\n' }),
    );
  }),
  "exported functions reach programs, removed functions are gone": inBash(async ({ environment }) => {
    await using session = await environment.openSession();
    await session.exec("f() { echo f; }; g() { echo g; }; export -f f");
    expect(await session.exec("bash -c f; bash -c g 2>/dev/null || echo none; g")).toEqual(
      result({ output: "f\nnone\ng\n" }),
    );
    await session.exec("unset -f f g");
    expect(
      await session.exec("f 2>/dev/null; echo $?; bash -c f 2>/dev/null; echo $?; g 2>/dev/null; echo $?"),
    ).toEqual(result({ output: "127\n127\n127\n" }));
  }),
  "aliases are kept, removed aliases are gone": inBash(async ({ environment }) => {
    await using session = await environment.openSession();
    await session.exec("alias greet='echo hello' quo='echo \"it is\"'");
    expect(await session.exec("greet world; quo x")).toEqual(result({ output: "hello world\nit is x\n" }));
    await session.exec("unalias greet");
    expect(await session.exec("greet 2>/dev/null; echo $?; quo y")).toEqual(
      result({ output: "127\nit is y\n" }),
    );
  }),
  "options are not kept (SH-13)": async ({ environment }) => {
    expect(await inOrder(environment, "set -e; false; echo no")).toEqual(result({ exitCode: 1 }));
    expect(
      await inOrder(
        environment,
        "set -efuC; set -a",
        "false; echo alive $nope /dev/nul[l]; X=1; sh -c 'echo ${X-unset}'",
      ),
    ).toEqual(result({ output: "alive /dev/null\nunset\n" }));
  },
  "bash's options are not kept": inBash(async ({ environment }) => {
    expect(
      await inOrder(
        environment,
        "set -o pipefail; shopt -s nullglob failglob extglob dotglob nocasematch",
        "false | true; echo $? /nowhere/*; [[ a == A ]] || echo case; shopt -p nullglob extglob",
      ),
    ).toMatchObject({ output: "0 /nowhere/*\ncase\nshopt -u nullglob\nshopt -u extglob\n" });
  }),
  "variables that `set -a` exports are kept": async ({ environment }) => {
    expect(await inOrder(environment, "set -a; ALL=1", "sh -c 'echo $ALL'")).toEqual(
      result({ output: "1\n" }),
    );
  },
  "traps are not kept": async ({ environment }) => {
    await using session = await environment.openSession();
    expect(await session.exec("trap 'echo bye' EXIT; trap '' TERM; trap 'echo int' INT; echo hi")).toEqual(
      result({ output: "hi\nbye\n" }),
    );
    expect(await session.exec("trap; echo next; sh -c 'kill -TERM $$'; echo $?")).toMatchObject({
      output: expect.stringMatching(/^next\n(Terminated\n)?143\n$/),
    });
  },
  "mask and limits are not kept": async ({ environment }) => {
    await using session = await environment.openSession();
    const before = await session.exec("umask; ulimit -n");
    await session.exec("umask 777; ulimit -n 20");
    expect(await session.exec("umask; ulimit -n")).toEqual(result({ output: before.output }));
  },
  "redirections of the shell itself are not kept": async ({ environment }) => {
    const folder = await scratch(environment);
    expect(
      await inOrder(
        environment,
        `exec 5>${folder}/five >${folder}/out 2>&1; echo a`,
        "echo b; echo c 2>/dev/null >&5 || echo none",
      ),
    ).toMatchObject({ output: "b\nnone\n" });
    expect((await environment.files.readFile(`${folder}/out`)).bytes.toString()).toBe("a\n");
  },
  "jobs are not kept": async ({ environment }) => {
    expect(await inOrder(environment, "sleep 2 &", "jobs; wait; echo waited")).toMatchObject({
      output: "waited\n",
    });
  },
  "variables of Moorage's own do not show": async ({ environment }) => {
    await using session = await environment.openSession();
    const names = async () =>
      (await session.exec("set -a; env | sed -n 's/^\\([A-Za-z_][A-Za-z0-9_]*\\)=.*/\\1/p' | sort -u"))
        .output;
    const first = await names();
    expect(await names()).toBe(first);
    await session.exec("set -a; true");
    expect(await names()).toBe(first);
  },
} satisfies Cases;
