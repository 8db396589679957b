/** The life of sessions: beginning, order, independence, end. */
import { expect } from "vitest";
import {
  type Cases,
  cut,
  expectCode,
  living,
  result,
  scratch,
  token,
  uniqueSeconds,
  until,
  untilGone,
} from "./support.ts";

export const sessions = {
  "a session starts in the workspace": async ({ environment }) => {
    await using session = await environment.openSession();
    expect(session.cwd).toBe(environment.workspace);
    expect(await session.exec("pwd")).toEqual(
      result({ output: `${environment.workspace}\n`, cwd: environment.workspace }),
    );
  },
  "a session can start in a folder and with variables of its own": async ({ environment }) => {
    const folder = await scratch(environment);
    await using session = await environment.openSession({ cwd: folder, env: { OWN: "a b" } });
    expect(await session.exec("pwd; sh -c 'echo \"$OWN\"'")).toEqual(
      result({ output: `${folder}\na b\n`, cwd: folder }),
    );
    expect(await session.exec("echo $OWN")).toMatchObject({ output: "a b\n" });
  },
  "a session cannot start in a missing folder": async ({ environment }) => {
    const message = await expectCode(
      environment.openSession({ cwd: "/nope/nowhere" }).then((session) => session.exec("true")),
      "WORKDIR_MISSING",
    );
    expect(message).toContain("/nope/nowhere");
  },
  "sessions have ids of their own and share nothing": async ({ environment }) => {
    await using one = await environment.openSession();
    await using two = await environment.openSession();
    expect(one.id).not.toBe(two.id);
    await one.exec("export ONLY=one; cd /");
    expect(await two.exec('echo "${ONLY-none}"; pwd')).toEqual(
      result({ output: `none\n${environment.workspace}\n` }),
    );
    expect(one.cwd).toBe("/");
    expect(two.cwd).toBe(environment.workspace);
  },
  "calls in one session queue in their order": async ({ environment }) => {
    await using session = await environment.openSession();
    const calls = Array.from({ length: 12 }, (_, index) =>
      session.exec(`export TRACE="$TRACE ${index}"; echo "$TRACE"`),
    );
    const outputs = (await Promise.all(calls)).map(({ output }) => output.trim());
    expect(outputs).toEqual(
      outputs.map((_, index) => Array.from({ length: index + 1 }, (__, at) => at).join(" ")),
    );
  },
  "sessions run side by side": async ({ environment }) => {
    await using slow = await environment.openSession();
    await using quick = await environment.openSession();
    const folder = await scratch(environment);
    const waiting = slow.exec(`until [ -e ${folder}/go ]; do sleep 1; done; echo went`, {
      timeoutMs: 20_000,
    });
    expect(await quick.exec(`: > ${folder}/go; echo set`)).toMatchObject({ output: "set\n" });
    expect(await waiting).toEqual(result({ output: "went\n" }));
  },
  "20 sessions at once keep their own folder and variables (SH-51)": async ({ environment }) => {
    const folder = await scratch(environment);
    const outcomes = await Promise.all(
      Array.from({ length: 20 }, async (_, index) => {
        await using session = await environment.openSession();
        const first = await session.exec(
          `export V${index}=1 WHO=${index}; mkdir ${folder}/d${index}; cd ${folder}/d${index}; sleep 1; pwd`,
        );
        const second = await session.exec('pwd; echo "$WHO"; env | grep -c "^V[0-9]*=1$"');
        return [first.output, second.output];
      }),
    );
    expect(outcomes).toEqual(
      outcomes.map((_, index) => [`${folder}/d${index}\n`, `${folder}/d${index}\n${index}\n1\n`]),
    );
  },
  "200 calls in a row all answer": async ({ environment }) => {
    await using session = await environment.openSession();
    for (let index = 0; index < 200; index += 1) {
      expect(await session.exec(`echo ${index}; exit ${index}`)).toEqual(
        result({ exitCode: index, output: `${index}\n` }),
      );
    }
  },
  "every exit code from 0 to 255 is given as it is": async ({ environment }) => {
    await using session = await environment.openSession();
    const calls = Array.from({ length: 256 }, (_, code) => session.exec(`exit ${code}`));
    expect((await Promise.all(calls)).map(({ exitCode }) => exitCode)).toEqual(calls.map((_, code) => code));
  },
  "a call sees the exit status 0 and no arguments of an earlier one": async ({ environment }) => {
    await using session = await environment.openSession();
    await session.exec("set -- a b; false");
    expect(await session.exec('echo "$? $#"')).toEqual(result({ output: "0 0\n" }));
  },
  "a folder given to a call is from the session's folder and for this call only": async ({ environment }) => {
    const folder = await scratch(environment);
    await using session = await environment.openSession({ cwd: folder });
    await session.exec("mkdir inner");
    expect(await session.exec("pwd", { cwd: "inner" })).toMatchObject({ output: `${folder}/inner\n` });
    expect(await session.exec("pwd")).toEqual(result({ output: `${folder}\n`, cwd: folder }));
    expect(await expectCode(session.exec("true", { cwd: "missing" }), "WORKDIR_MISSING")).toContain(
      "missing",
    );
    expect(await session.exec("pwd")).toMatchObject({ output: `${folder}\n` });
  },
  "variables given to a call are for this call only": async ({ environment }) => {
    await using session = await environment.openSession();
    await session.exec("export SET=before");
    expect(await session.exec("sh -c 'echo $SET $NEW'", { env: { SET: "during", NEW: "1" } })).toMatchObject({
      output: "during 1\n",
    });
    expect(await session.exec('echo "$SET ${NEW-unset}"')).toMatchObject({ output: "before unset\n" });
  },
  "an abort before the start runs nothing": async ({ environment }) => {
    const folder = await scratch(environment);
    await using session = await environment.openSession();
    const abortSignal = AbortSignal.abort();
    expect(await session.exec(`: > ${folder}/ran`, { abortSignal })).toEqual(cut("aborted"));
    expect(await environment.exec(`: > ${folder}/ran`, { abortSignal })).toEqual(cut("aborted"));
    expect(await environment.files.list(folder)).toEqual([]);
  },
  "an abort of a queued call runs nothing of it and leaves the others": async ({ environment }) => {
    const folder = await scratch(environment);
    await using session = await environment.openSession();
    const controller = new AbortController();
    const first = session.exec(`until [ -e ${folder}/go ]; do sleep 1; done; echo first`, {
      timeoutMs: 20_000,
    });
    const second = session.exec(`: > ${folder}/ran`, { abortSignal: controller.signal });
    const third = session.exec("echo third");
    controller.abort();
    expect(await second).toEqual(cut("aborted"));
    await environment.exec(`: > ${folder}/go`);
    expect(await first).toEqual(result({ output: "first\n" }));
    expect(await third).toEqual(result({ output: "third\n" }));
    expect((await environment.files.list(folder)).map(({ name }) => name)).toEqual(["go"]);
  },
  "an abort after the end changes nothing": async ({ environment }) => {
    await using session = await environment.openSession();
    const controller = new AbortController();
    const ended = await session.exec("echo done", { abortSignal: controller.signal });
    controller.abort();
    expect(ended).toEqual(result({ output: "done\n" }));
    expect(await session.exec("echo on")).toEqual(result({ output: "on\n" }));
  },
  "close() is idempotent and ends the session": async ({ environment }) => {
    const session = await environment.openSession();
    await session.exec("true");
    await Promise.all([session.close(), session.close()]);
    await session.close();
    await expectCode(session.exec("true"), "SESSION_CLOSED");
  },
  "close() aborts the running call": async ({ environment }) => {
    const session = await environment.openSession();
    const seconds = uniqueSeconds();
    const running = session.exec(`echo begun; sleep ${seconds}`);
    await until(async () => (await living(environment, seconds)) > 0, "the command runs");
    await session.close();
    expect(await running).toEqual(cut("aborted", { output: "begun\n" }));
    await untilGone(environment, seconds);
  },
  "a session that was never used can be closed": async ({ environment }) => {
    const session = await environment.openSession();
    await session.close();
    expect(await environment.exec("echo on")).toEqual(result({ output: "on\n" }));
  },
  "a session answers with the folder of each call": async ({ environment }) => {
    const folder = await scratch(environment);
    await using session = await environment.openSession();
    expect(await session.exec(`cd ${folder}`)).toEqual(result({ cwd: folder }));
    expect(session.cwd).toBe(folder);
    expect(await session.exec(`mkdir ${token()}; cd ..`)).toEqual(result({ cwd: environment.workspace }));
    expect(session.cwd).toBe(environment.workspace);
  },
} satisfies Cases;
