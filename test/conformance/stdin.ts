/** Standard input: empty unless given, and byte for byte what was given. */
import { createHash } from "node:crypto";
import { expect } from "vitest";
import { limits } from "../../src/limits.ts";
import { type Cases, cut, expectCode, pseudoRandom, result, token } from "./support.ts";

const MiB = 1024 * 1024;

function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

export const stdin = {
  "stdin is empty unless given (SH-36)": async ({ environment }) => {
    await using session = await environment.openSession();
    for (const target of [environment, session]) {
      expect(await target.exec("cat; echo $?")).toEqual(result({ output: "0\n" }));
      expect(await target.exec('read x; echo "$? got:$x"')).toEqual(result({ output: "1 got:\n" }));
      expect(await target.exec(["cat"])).toEqual(result());
    }
    expect(await session.exec("echo on")).toEqual(result({ output: "on\n" }));
  },
  "stdin of 0 bytes and of 1 byte is exact": async ({ environment }) => {
    expect(await environment.exec("wc -c", { stdin: "" })).toMatchObject({
      output: expect.stringMatching(/^\s*0\n$/),
    });
    expect(await environment.exec("cat", { stdin: "x" })).toEqual(result({ output: "x" }));
    expect(await environment.exec("od -An -tx1", { stdin: Uint8Array.of(0) })).toEqual(
      result({ output: " 00\n" }),
    );
  },
  "stdin text is UTF-8": async ({ environment }) => {
    expect(await environment.exec("cat", { stdin: "é漢😀\n" })).toEqual(result({ output: "é漢😀\n" }));
  },
  "stdin holds every byte value": async ({ environment }) => {
    await using session = await environment.openSession();
    const bytes = Buffer.from(Array.from({ length: 1024 }, (_, index) => index % 256));
    expect(await session.exec("sha256sum", { stdin: bytes })).toEqual(
      result({ output: `${sha256(bytes)}  -\n` }),
    );
    expect(await session.exec(["sha256sum"], { stdin: bytes })).toEqual(
      result({ output: `${sha256(bytes)}  -\n` }),
    );
  },
  "stdin of 5 MB is exact, stateless and in a session": async ({ environment }) => {
    const bytes = pseudoRandom(5_000_000);
    await using session = await environment.openSession();
    for (const target of [environment, session]) {
      expect(await target.exec("sha256sum", { stdin: bytes })).toEqual(
        result({ output: `${sha256(bytes)}  -\n` }),
      );
    }
  },
  "stdin of 50 MiB is exact": async ({ environment }) => {
    const bytes = pseudoRandom(50 * MiB, 7);
    expect(await environment.exec("sha256sum", { stdin: bytes })).toEqual(
      result({ output: `${sha256(bytes)}  -\n` }),
    );
  },
  "stdin beyond the limit is refused": async ({ environment }) => {
    await expectCode(
      environment.exec("true", { stdin: Buffer.alloc(limits.stdinMaxBytes + 1) }),
      "EXECUTION_REFUSED",
    );
  },
  "stdin comes back through the command byte for byte": async ({ environment }) => {
    const bytes = pseudoRandom(MiB, 3);
    const chunks: Uint8Array[] = [];
    await environment.exec("cat", {
      stdin: bytes,
      onOutput: ({ data }) => {
        chunks.push(Uint8Array.from(data));
      },
    });
    expect(sha256(Buffer.concat(chunks))).toBe(sha256(bytes));
  },
  "a command that ignores its stdin ends, and the next is not fed with it": async ({ environment }) => {
    await using session = await environment.openSession();
    const stdin = "echo INJECTED; exit 99\n".repeat(200_000);
    expect(await session.exec("exit 5", { stdin })).toEqual(result({ exitCode: 5 }));
    expect(await session.exec("cat; echo on")).toEqual(result({ output: "on\n" }));
    expect(await session.exec(["true"], { stdin })).toEqual(result());
    expect(await session.exec("cat", { stdin: "own" })).toEqual(result({ output: "own" }));
  },
  "a command that reads half of its stdin ends, and the next is not fed with the rest": async ({
    environment,
  }) => {
    await using session = await environment.openSession();
    const stdin = "0123456789".repeat(500_000);
    expect(await session.exec("head -c 10", { stdin })).toEqual(result({ output: "0123456789" }));
    expect(await session.exec("cat", { stdin: "own" })).toEqual(result({ output: "own" }));
    expect(await session.exec("cat")).toEqual(result());
  },
  "programs of one command share its stdin": async ({ environment }) => {
    expect(await environment.exec('read a; read b; echo "$b $a"; cat', { stdin: "1\n2\nrest\nend" })).toEqual(
      result({ output: "2 1\nrest\nend" }),
    );
  },
  "a shell reads its script from stdin": async ({ environment }) => {
    expect(await environment.exec(["sh"], { stdin: "echo from stdin\nexit 6\n" })).toEqual(
      result({ exitCode: 6, output: "from stdin\n" }),
    );
    await using session = await environment.openSession();
    expect(await session.exec("sh -s x <&0", { stdin: 'echo "$1"' })).toEqual(result({ output: "x\n" }));
  },
  "output that comes long after the end of stdin arrives (DK-07, DK-08)": async ({ environment }) => {
    expect(await environment.exec("wc -c", { stdin: "test\n" })).toMatchObject({
      exitCode: 0,
      output: expect.stringMatching(/^\s*5\n$/),
    });
    expect(await environment.exec("cat >/dev/null; sleep 2; echo late; exit 4", { stdin: "x" })).toEqual(
      result({ exitCode: 4, output: "late\n" }),
    );
  },
  "a here-document wins over stdin": async ({ environment }) => {
    expect(await environment.exec("cat <<'EOF'\ndoc\nEOF\ncat", { stdin: "given" })).toEqual(
      result({ output: "doc\ngiven" }),
    );
  },
  "a command that never reads its large stdin can be timed out": async ({ environment }) => {
    await using session = await environment.openSession();
    expect(await session.exec("sleep 60", { stdin: Buffer.alloc(5_000_000), timeoutMs: 1_000 })).toEqual(
      cut("timedOut"),
    );
    expect(await session.exec("cat", { stdin: "own" })).toEqual(result({ output: "own" }));
  },
  "nothing of a stdin or a file's content is run as code when it is cut on its way": async ({
    environment,
  }) => {
    const file = `/tmp/${token()}`;
    const code = `: >${file}\n`.repeat(300_000);
    const controller = new AbortController();
    const run = await environment.exec("echo on; sleep 1000", {
      stdin: code,
      abortSignal: controller.signal,
      onOutput: () => controller.abort(),
    });
    expect(run).toEqual(cut("aborted", { output: "on\n" }));
    const written = `/tmp/${token()}`;
    await using session = await environment.openSession();
    for (const afterMs of [30, 60, 120]) {
      const abortSignal = AbortSignal.timeout(afterMs);
      // Whether a write that is cancelled so late is done is not the question.
      await environment.files.writeFile(written, code, { abortSignal }).catch(() => undefined);
    }
    expect(await session.exec(`rm -f ${written}; [ ! -e ${file} ]`)).toEqual(result());
  },
  "a command that closes its stdin goes on": async ({ environment }) => {
    expect(
      await environment.exec("exec <&-; sleep 1; echo on; exit 3", { stdin: Buffer.alloc(1_000_000) }),
    ).toEqual(result({ exitCode: 3, output: "on\n" }));
  },
  "10 sessions at once each get their own stdin": async ({ environment }) => {
    const outcomes = await Promise.all(
      Array.from({ length: 10 }, async (_, index) => {
        await using session = await environment.openSession();
        const bytes = pseudoRandom(300_000, index + 1);
        return (await session.exec("sha256sum", { stdin: bytes })).output === `${sha256(bytes)}  -\n`;
      }),
    );
    expect(outcomes).toEqual(outcomes.map(() => true));
  },
  "commands that end before their stdin has come are not held up by it": async ({ environment }) => {
    const stdin = Buffer.alloc(300_000, "unread\n");
    await Promise.all(
      Array.from({ length: 6 }, async () => {
        await using session = await environment.openSession();
        for (let call = 0; call < 5; call += 1) {
          expect(await session.exec(`KEPT=${call}; export KEPT`, { stdin })).toEqual(result());
        }
      }),
    );
  },
} satisfies Cases;
