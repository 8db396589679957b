/** Beginning and end of an environment. Each case makes its own. */
import { expect } from "vitest";
import type { BaseEnvironment } from "../../environments/base.ts";
import {
  type Case,
  type CaseContext,
  type Cases,
  cut,
  expectCode,
  living,
  result,
  token,
  uniqueSeconds,
  until,
} from "./support.ts";

/** A case with an environment of its own, not started, that is stopped afterwards. */
function alone(check: (own: BaseEnvironment, context: CaseContext) => Promise<void>): Case {
  return async (context) => {
    await using own = await context.create();
    await check(own, context);
  };
}

export const lifecycle = {
  "start() is idempotent, and callers at once share one": alone(async (own) => {
    await Promise.all([own.start(), own.start(), own.start()]);
    await own.start();
    expect(await own.exec("echo on")).toEqual(result({ output: "on\n" }));
  }),
  "members start the environment by themselves": alone(async (own) => {
    expect(await own.exec("echo on")).toEqual(result({ output: "on\n" }));
  }),
  "sessions, files and processes start the environment by themselves": async ({ create }) => {
    await using one = await create();
    await using session = await one.openSession();
    expect(await session.exec("echo on")).toEqual(result({ output: "on\n" }));
    await using two = await create();
    await two.files.writeFile(`${two.workspace}/f`, "x");
    await using three = await create();
    expect(await (await three.processes.start("exit 3")).wait({ timeoutMs: 20_000 })).toMatchObject({
      info: { exitCode: 3 },
    });
  },
  "info() tells what it is": alone(async (own) => {
    expect(own.info().shell).toBe(null);
    await own.start();
    const { egress, sharedFolder, ...told } = own.info();
    expect(told).toEqual({
      id: own.id,
      backend: own.backend,
      workspace: own.workspace,
      isolation: own.isolation,
      description: expect.stringMatching(/./),
      shell: expect.toBeOneOf(["bash", "sh"]),
      exposedHostPaths: expect.any(Array),
    });
    // Told by environments whose workspace is a folder of the host.
    if (sharedFolder !== undefined) expect(sharedFolder).toMatch(/^\//);
    // Told by environments that judge what leaves them.
    if (egress !== undefined) {
      expect(egress).toEqual({ policy: expect.stringMatching(/./), allowed: 0, denied: 0, refusals: [] });
    }
    expect(own.workspace).toMatch(/^\//);
    expect(["none", "process", "container", "vm"]).toContain(own.isolation);
  }),
  "the shell that is told is the shell that runs commands": alone(async (own) => {
    await own.start();
    const { output } = await own.exec('if [ -n "$BASH_VERSION" ]; then echo bash; else echo sh; fi');
    expect(output.trim()).toBe(own.info().shell);
  }),
  "an isolated environment shows nothing of the host": alone(async (own, { skip }) => {
    if (own.isolation === "none") skip("the environment promises no isolation");
    await own.start();
    expect(own.info().exposedHostPaths).not.toContain("/");
  }),
  "ids differ": async ({ create }) => {
    await using one = await create();
    await using two = await create();
    expect(one.id).not.toBe(two.id);
  },
  "secrets of the host reach no command": async ({ create }) => {
    const secret = token();
    process.env.CONFORMANCE_API_KEY = secret;
    process.env.CONFORMANCE_SECRET_TOKEN = secret;
    try {
      await using own = await create();
      const { output } = await own.exec("env; export -p; cat /proc/self/environ | tr '\\000' '\\n'");
      expect(output).not.toContain(secret);
    } finally {
      delete process.env.CONFORMANCE_API_KEY;
      delete process.env.CONFORMANCE_SECRET_TOKEN;
    }
  },
  "two environments at once do not mix": async ({ create }) => {
    await using one = await create();
    await using two = await create();
    await Promise.all([one.start(), two.start()]);
    await using session = await one.openSession();
    await session.exec("export ONLY=one");
    const started = await one.processes.start("sleep 60");
    await using other = await two.openSession();
    expect(await other.exec("echo ${ONLY-none}")).toEqual(result({ output: "none\n" }));
    expect(await two.processes.list()).toEqual([]);
    await expectCode(two.processes.get(started.id), "PROCESS_MISSING");
    await two.stop();
    expect((await started.info()).status).toBe("running");
    expect(await session.exec("echo $ONLY")).toEqual(result({ output: "one\n" }));
  },
  "stop() is idempotent, also before a start and at once": async ({ create }) => {
    const never = await create();
    await never.stop();
    await never.stop();
    const own = await create();
    await own.exec("true");
    await Promise.all([own.stop(), own.stop()]);
    await own.stop();
  },
  "stop() during a start leaves nothing": async ({ create, facts: { leftovers }, skip }) => {
    const own = await create();
    const starting = own
      .start()
      .catch((error: unknown) =>
        expectCode(Promise.reject(error), "ENVIRONMENT_STOPPED", "ABORTED", "ENVIRONMENT_UNAVAILABLE"),
      );
    await own.stop();
    await starting;
    if (!leftovers) return skip("the backend cannot tell what is left on the host");
    expect(await leftovers(own)).toEqual([]);
  },
  "a stopped environment refuses every member": async ({ create }) => {
    const own = await create();
    const session = await own.openSession();
    await session.exec("true");
    const started = await own.processes.start("sleep 60");
    await own.stop();
    const { files, processes } = own;
    for (const ask of [
      () => own.exec("true"),
      () => own.openSession(),
      () => files.readFile("/etc/passwd"),
      () => files.writeFile("f", "x"),
      () => files.list("/"),
      () => processes.start("true"),
    ]) {
      await expectCode(ask(), "ENVIRONMENT_STOPPED");
    }
    await expectCode(session.exec("true"), "ENVIRONMENT_STOPPED", "SESSION_CLOSED");
    await expectCode(started.write("x"), "ENVIRONMENT_STOPPED", "PROCESS_NOT_RUNNING");
    await session.close();
  },
  "stop() ends running commands": async ({ create }) => {
    const own = await create();
    const session = await own.openSession();
    const seconds = uniqueSeconds();
    const running = [own.exec(`sleep ${seconds}`), session.exec(`sleep ${seconds}`)];
    await until(async () => (await living(own, seconds)) >= 2, "both run");
    const settled = Promise.allSettled(running);
    await own.stop();
    for (const outcome of await settled) {
      if (outcome.status === "fulfilled") expect(outcome.value).toMatchObject(cut("aborted", { output: "" }));
      else await expectCode(Promise.reject(outcome.reason), "ENVIRONMENT_STOPPED", "ABORTED");
    }
  },
  "stop() leaves nothing, whatever was begun": async ({ create, facts: { leftovers }, skip }) => {
    if (!leftovers) return skip("the backend cannot tell what is left on the host");
    const own = await create();
    const session = await own.openSession();
    const seconds = uniqueSeconds();
    await session.exec(
      `sleep ${seconds} & setsid sleep ${seconds} & (trap '' TERM HUP; sleep ${seconds}) & (setsid sh -c 'sleep ${seconds} & sleep ${seconds}' &)`,
    );
    await own.exec(`sleep ${seconds}`, { yieldMs: 200 });
    await own.processes.start(`setsid sleep ${seconds} & sleep ${seconds}`);
    await own.exec("seq 1 100000", { captureBytes: 1_000 });
    void session.exec(`sleep ${seconds}`).catch(() => "ends with its environment");
    await until(async () => (await living(own, seconds)) >= 8, "all run");
    await own.stop();
    expect(await leftovers(own)).toEqual([]);
  },
  "an environment used by `await using` is stopped": async ({ create }) => {
    let kept: BaseEnvironment;
    {
      await using own = await create();
      await own.exec("true");
      kept = own;
    }
    await expectCode(kept.exec("true"), "ENVIRONMENT_STOPPED");
  },
} satisfies Cases;
