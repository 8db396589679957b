/** `exec()` on the environment: one command, no memory. */
import { expect } from "vitest";
import { limits } from "../../src/limits.ts";
import { type Cases, died, expectCode, expectRefused, result, scratch, token } from "./support.ts";

export const exec = {
  "exec() runs a shell line in the workspace": async ({ environment }) => {
    expect(await environment.exec("echo hi; pwd")).toEqual(
      result({ output: `hi\n${environment.workspace}\n`, cwd: environment.workspace }),
    );
  },
  "exec() runs several lines": async ({ environment }) => {
    expect(await environment.exec("a=1\nif true\nthen\n  echo $a\nfi\n")).toEqual(result({ output: "1\n" }));
  },
  "exec() gives a non-zero exit code as a result": async ({ environment }) => {
    expect(await environment.exec("exit 7")).toEqual(result({ exitCode: 7 }));
  },
  "exec() gives exit code and emptiness for a command without output (SH-48)": async ({ environment }) => {
    await using session = await environment.openSession();
    for (const target of [environment, session]) {
      expect(await target.exec("true")).toEqual(result());
      expect(await target.exec("grep -q zzz /dev/null")).toEqual(result({ exitCode: 1 }));
    }
  },
  "exec() gives exit codes also when the command discards its output": async ({ environment }) => {
    expect(await environment.exec("sh -c 'echo x; exit 7' >/dev/null 2>&1")).toEqual(result({ exitCode: 7 }));
  },
  "exec() answers a missing command with 127 and its name": async ({ environment }) => {
    const missing = token();
    expect(await environment.exec(missing)).toEqual(
      result({ exitCode: 127, output: expect.stringContaining(missing) }),
    );
  },
  "exec() answers a file that is not executable with 126": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.files.writeFile(`${folder}/plain`, "echo no\n", { mode: 0o644 });
    expect(await environment.exec(`${folder}/plain`)).toMatchObject({ exitCode: 126 });
    expect(await environment.exec([`${folder}/plain`])).toMatchObject({ exitCode: 126 });
  },
  "exec() answers a death by signal with 128 and its number": async ({ environment }) => {
    expect(await environment.exec("sh -c 'kill -TERM $$'")).toEqual(
      died(143, "SIGTERM", { output: expect.any(String) }),
    );
    expect(await environment.exec(["sh", "-c", "kill -KILL $$"])).toEqual(
      died(137, "SIGKILL", { output: expect.any(String) }),
    );
    expect(await environment.exec(["sh", "-c", "kill -INT $$"])).toMatchObject({ exitCode: 130 });
  },
  "exec() gives the last bytes of a shell that was killed, a NUL too": async ({ environment }) => {
    expect(await environment.exec("printf 'last\\0'; kill -KILL $$", { output: "separate" })).toMatchObject({
      exitCode: 137,
      stdout: "last\0",
    });
    expect(await environment.exec("printf 'last\\0\\0' >&2; kill -KILL $$")).toMatchObject({
      exitCode: 137,
      output: expect.stringMatching(/^last\0\0/),
    });
  },
  "exec() remembers nothing of an earlier exec()": async ({ environment }) => {
    await environment.exec("export LEAK=1; cd /; f() { echo leak; }");
    expect(await environment.exec('echo "${LEAK-none}"; pwd; f 2>/dev/null || echo none')).toEqual(
      result({ output: `none\n${environment.workspace}\nnone\n` }),
    );
  },
  "exec() calls run side by side": async ({ environment }) => {
    const folder = await scratch(environment);
    const meet = (mine: string, other: string) =>
      environment.exec(
        `: > ${mine}; i=0; while [ ! -e ${other} ] && [ $i -lt 1000 ]; do sleep 0.02 || sleep 1; i=$((i+1)); done; [ -e ${other} ]`,
        { cwd: folder, timeoutMs: 20_000 },
      );
    expect(await Promise.all([meet("a", "b"), meet("b", "a")])).toEqual([
      result({ cwd: folder }),
      result({ cwd: folder }),
    ]);
  },
  "exec() takes lines that end as on Windows, and keeps carriage returns that are meant (SSH-21)": async ({
    environment,
  }) => {
    const command = "if true; then\r\n  cat <<'E'\r\na\r\nE\r\nfi\r\n";
    expect(await environment.exec(command)).toMatchObject({ output: "a\n", exitCode: 0 });
    await using session = await environment.openSession();
    expect(await session.exec("LINES_END=1\r\nexport LINES_END\r\n")).toMatchObject({ exitCode: 0 });
    expect(await session.exec('printf "$LINES_END\r\n" | wc -c')).toMatchObject({
      output: expect.stringMatching(/^\s*3\n$/),
    });
    const started = await environment.processes.start("echo b\r\nexit 3\r\n");
    expect((await started.wait({ exit: true })).info.exitCode).toBe(3);
    expect((await started.log()).text).toBe("b\n");
    const exact = "cat <<'E' | wc -c\nc\r\nE\n";
    expect(await environment.exec(exact)).toMatchObject({ output: expect.stringMatching(/^\s*3\n$/) });
  },
  "exec() measures the time that the command took": async ({ environment }) => {
    const { durationMs } = await environment.exec("sleep 1");
    expect(durationMs).toBeGreaterThan(900);
    expect(durationMs).toBeLessThan(10_000);
  },
  "exec() takes a folder for this command, absolute or from the workspace": async ({ environment }) => {
    const folder = await scratch(environment);
    const name = folder.slice(folder.lastIndexOf("/") + 1);
    expect(await environment.exec("pwd", { cwd: folder })).toEqual(
      result({ output: `${folder}\n`, cwd: folder }),
    );
    expect(await environment.exec("pwd", { cwd: name })).toEqual(
      result({ output: `${folder}\n`, cwd: folder }),
    );
    expect(await environment.exec(["pwd"], { cwd: `./${name}` })).toMatchObject({ output: `${folder}\n` });
  },
  "exec() takes folders with awkward names": async ({ environment }) => {
    const folder = await scratch(environment);
    for (const name of ["-P", "--", "a b", "q'\"", "$(id)", "new\nline", "end\n", "*?[a]", "ünï", "\\n"]) {
      const path = `${folder}/${name}`;
      await environment.files.mkdir(path);
      expect(await environment.exec("pwd", { cwd: path })).toEqual(
        result({ output: `${path}\n`, cwd: path }),
      );
    }
    await environment.files.mkdir(`${environment.workspace}/-dash`);
    expect(await environment.exec("pwd", { cwd: "-dash" })).toMatchObject({
      output: `${environment.workspace}/-dash\n`,
    });
  },
  "exec() names a missing folder and runs nothing (SH-50)": async ({ environment }) => {
    const folder = await scratch(environment);
    const message = await expectCode(
      environment.exec(`: > ${folder}/ran`, { cwd: "/nope/nowhere" }),
      "WORKDIR_MISSING",
    );
    expect(message).toContain("/nope/nowhere");
    expect(await environment.files.list(folder)).toEqual([]);
  },
  "exec() refuses a file in place of a folder": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.files.writeFile(`${folder}/file`, "");
    await expectCode(
      environment.exec("true", { cwd: `${folder}/file` }),
      "WORKDIR_MISSING",
      "NOT_A_DIRECTORY",
    );
  },
  "exec() refuses to work in /proc, /sys and /dev/fd": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec(`ln -s /proc/self ${folder}/link`);
    for (const cwd of [
      "/proc",
      "/proc/self/root",
      "/sys/kernel",
      "/dev/fd",
      "/tmp/../proc/1",
      "//proc",
      `${folder}/link`,
    ]) {
      await expectCode(
        environment.exec("true", { cwd }),
        "EXECUTION_REFUSED",
        "PATH_DENIED",
        "WORKDIR_MISSING",
      );
    }
  },
  "exec() exports variables for this command only": async ({ environment }) => {
    const env = { PLAIN: "1", AWKWARD: "a'b\"c $HOME `id` \\ \n\t* é", EMPTY: "" };
    expect(
      await environment.exec('sh -c \'printf "%s|%s|%s" "$PLAIN" "$AWKWARD" "${EMPTY-unset}"\'', { env }),
    ).toEqual(result({ output: `1|${env.AWKWARD}|` }));
    expect(await environment.exec("echo ${PLAIN-unset}")).toEqual(result({ output: "unset\n" }));
  },
  "exec() refuses variables that no process can have": async ({ environment }) => {
    await expectCode(environment.exec("true", { env: { A: "a\0b" } }), "EXECUTION_REFUSED");
    await expectRefused(environment.exec("true", { env: { "A=B": "1" } }));
    await expectRefused(environment.exec("true", { env: { "": "1" } }));
  },
  "exec() shows no variable's value in a command line": async ({ environment }) => {
    const secret = token();
    const look = `grep -l -e '[${secret.slice(0, 1)}]${secret.slice(1)}' /proc/[0-9]*/cmdline 2>/dev/null; sh -c 'printf %s "$SECRET"'`;
    expect(await environment.exec(look, { env: { SECRET: secret } })).toEqual(result({ output: secret }));
  },
  "exec() refuses amounts that cannot be meant": async ({ environment }) => {
    for (const captureBytes of [0, -1, 0.5, Number.NaN, Number.POSITIVE_INFINITY]) {
      await expectCode(environment.exec("true", { captureBytes }), "INVALID_ARGUMENTS");
    }
    await expectCode(environment.exec("true", { yieldMs: Number.NaN }), "INVALID_ARGUMENTS");
    const path = `${await scratch(environment)}/f`;
    await environment.files.writeFile(path, "x");
    for (const maxBytes of [-1, 0.5, Number.NaN]) {
      await expectCode(environment.files.readFile(path, { maxBytes }), "INVALID_ARGUMENTS");
      await expectCode(environment.files.readLines(path, { limit: maxBytes }), "INVALID_ARGUMENTS");
    }
    const started = await environment.processes.start("sleep 60");
    await expectCode(started.signal("HUP; echo"), "INVALID_ARGUMENTS");
    await expectCode(started.log({ maxBytes: 0 }), "INVALID_ARGUMENTS");
    await expectCode(started.wait({ port: 70_000 }), "INVALID_ARGUMENTS");
    await expectCode(started.wait({ timeoutMs: Number.NaN }), "INVALID_ARGUMENTS");
    await started.kill();
  },
  "exec() refuses a NUL in a command (SH-26)": async ({ environment }) => {
    await expectCode(environment.exec("echo a\0b"), "EXECUTION_REFUSED");
    await expectCode(environment.exec(["echo", "a\0b"]), "EXECUTION_REFUSED");
    expect(await environment.exec("echo on")).toEqual(result({ output: "on\n" }));
  },
  "exec() refuses timeouts that are no positive number": async ({ environment }) => {
    for (const timeoutMs of [0, -1, Number.NaN]) {
      await expectCode(environment.exec("true", { timeoutMs }), "INVALID_ARGUMENTS");
    }
  },
  "exec() runs commands of 1 MiB (SH-25)": async ({ environment }) => {
    expect(await environment.exec(`: ${"a".repeat(131_070)}\necho short`)).toEqual(
      result({ output: "short\n" }),
    );
    expect(await environment.exec(`: ${"a".repeat(1024 * 1024)}\necho long`)).toEqual(
      result({ output: "long\n" }),
    );
  },
  "exec() runs a here-document of 1 MiB": async ({ environment }) => {
    const body = `${"0123456789abcde\n".repeat(65_536)}`;
    expect(await environment.exec(`wc -c <<'EOF'\n${body}EOF\n`)).toMatchObject({
      exitCode: 0,
      output: expect.stringMatching(/^\s*1048576\s*$/),
    });
  },
  "exec() refuses a command beyond the limit": async ({ environment }) => {
    await expectCode(environment.exec(`: ${"a".repeat(limits.commandMaxBytes)}`), "EXECUTION_REFUSED");
  },
  "exec() opens no editor that waits, unless the caller names one (SH-35)": async ({ environment }) => {
    const folder = await scratch(environment);
    await using session = await environment.openSession({ cwd: folder });
    const editors = ["EDITOR", "VISUAL", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR"];
    for (const name of editors) {
      const edit = `echo kept > f; $${name} f && cat f`;
      expect(await environment.exec(edit, { cwd: folder, timeoutMs: 20_000 }), name).toMatchObject({
        output: "kept\n",
      });
      const mine = { env: { [name]: "rm" }, timeoutMs: 20_000 };
      expect(await session.exec(`echo mine > f; $${name} f; ls`, mine)).toEqual(result());
      await session.exec(`export ${name}=wc`);
    }
    expect(await session.exec(`echo ${editors.map((name) => `$${name}`).join(" ")}`)).toMatchObject({
      output: "wc wc wc wc\n",
    });
    const settings = 'git init -q . && git config user.name a && git config user.email "a@b"';
    if ((await environment.exec("command -v git")).exitCode !== 0) return;
    const waiting = `${settings} && git config core.editor 'sleep 600;' && git config sequence.editor 'sleep 600;'`;
    const commits =
      "for n in 1 2 3; do git commit -q --allow-empty -m $n || exit; done; echo x > g; git add g";
    expect(await environment.exec(`${waiting} && ${commits}`, { cwd: folder })).toMatchObject({
      exitCode: 0,
    });
    expect(await environment.exec("git commit", { cwd: folder, timeoutMs: 20_000 })).toMatchObject({
      exitCode: 1,
      output: expect.stringContaining("empty commit message"),
    });
    const rebase = "git commit -q -m 4 && git rebase -i HEAD~2 && git log --format=%s";
    expect(await environment.exec(rebase, { cwd: folder, timeoutMs: 20_000 })).toMatchObject({
      exitCode: 0,
      output: expect.stringMatching(/4\n3\n2\n1\n$/),
    });
  },
  "exec() lets no program ask for a password, and changes no command that names sudo (SH-37, SH-38)": async ({
    environment,
  }) => {
    const folder = await scratch(environment);
    // As sudo does it: the terminal itself is opened, whatever standard input is.
    const asking = `#!/bin/sh
printf '<%s>' "$@"
[ "$1" = -n ] || read -r password </dev/tty || { echo ' a password is required'; exit 1; }
`;
    await environment.files.writeFile(`${folder}/sudo`, asking, { mode: 0o755 });
    await using session = await environment.openSession();
    const options = { stdin: "a password\n", output: "separate", timeoutMs: 20_000 } as const;
    const asked = (output: string, exitCode: number) =>
      expect.objectContaining({ stdout: output, exitCode, timedOut: false });
    for (const target of [environment, session]) {
      const run = (command: string | string[]) => target.exec(command, options);
      const path = `PATH=${folder}:$PATH;`;
      expect(await run(`${path} sudo true`)).toEqual(asked("<true> a password is required\n", 1));
      expect(await run([`${folder}/sudo`, "id"])).toEqual(asked("<id> a password is required\n", 1));
      expect(await run(`${path} sudo -n true`)).toEqual(asked("<-n><true>", 0));
      expect(await run(`echo sudo true; echo 'sudo x' | grep sudo`)).toEqual(asked("sudo true\nsudo x\n", 0));
    }
  },
  "exec() adds no text of a login or of the shell's own": async ({ environment }) => {
    expect(await environment.exec("true")).toEqual(result());
    expect(await environment.exec("")).toEqual(result());
    expect(await environment.exec("# only a comment")).toEqual(result());
    expect(await environment.exec(" \n\n ")).toEqual(result());
  },
} satisfies Cases;
