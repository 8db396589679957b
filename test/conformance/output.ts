/** Output: order, bytes, bounds, and that none of it is taken for anything else. */
import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import type { BaseEnvironment, OutputChunk } from "../../environments/base.ts";
import { type Cases, cut, expectCode, inBash, result, token } from "./support.ts";

/** The full text of an output, read in slices. */
async function readAll(environment: BaseEnvironment, id: string, maxBytes: number): Promise<string> {
  const parts: string[] = [];
  for (let offset = 0; ; ) {
    const slice = await environment.outputs.read(id, { offset, maxBytes });
    expect(slice.offset).toBe(offset);
    parts.push(slice.text);
    if (slice.nextOffset >= slice.totalBytes) return parts.join("");
    expect(slice.nextOffset).toBeGreaterThan(offset);
    offset = slice.nextOffset;
  }
}

export const output = {
  "stdout and stderr are merged in the order written": async ({ environment }) => {
    const script = "i=0; while [ $i -lt 200 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
    const lines = Array.from({ length: 200 }, (_, index) => `out ${index}\nerr ${index}\n`).join("");
    expect(await environment.exec(script)).toEqual(result({ output: lines }));
  },
  "stdout and stderr come apart when asked": async ({ environment }) => {
    const script = "echo out; echo err >&2; echo more; sh -c 'echo deep >&2'; exit 5";
    const expected = result({ exitCode: 5, stdout: "out\nmore\n", stderr: "err\ndeep\n" });
    expect(await environment.exec(script, { output: "separate" })).toEqual(expected);
    await using session = await environment.openSession();
    expect(await session.exec(script, { output: "separate" })).toEqual(expected);
    expect(await session.exec("echo a; echo b >&2")).toEqual(result({ output: "a\nb\n" }));
  },
  "/dev/stdout and /dev/stderr can be opened": async ({ environment }) => {
    const script = "echo a >/dev/stdout; echo b >/dev/stderr; echo c | tee -a /dev/stderr";
    expect(await environment.exec(script)).toEqual(result({ output: "a\nb\nc\nc\n" }));
    expect(await environment.exec(script, { output: "separate" })).toEqual(
      result({ stdout: "a\nc\n", stderr: "b\nc\n" }),
    );
  },
  "output without a final newline gets none": async ({ environment }) => {
    expect(await environment.exec("printf x")).toEqual(result({ output: "x" }));
    expect(await environment.exec("printf '\\n\\n'")).toEqual(result({ output: "\n\n" }));
  },
  "carriage returns and escape sequences pass as they are": async ({ environment }) => {
    expect(
      await environment.exec("printf '\\r50%%\\r100%%\\r\\n\\033[31mred\\033[0m\\033]0;t\\007'"),
    ).toEqual(result({ output: "\r50%\r100%\r\n\x1b[31mred\x1b[0m\x1b]0;t\x07" }));
  },
  "every byte from 0 to 127 passes": async ({ environment }) => {
    const bytes = Buffer.from(Array.from({ length: 128 }, (_, byte) => byte));
    expect(await environment.exec("cat", { stdin: bytes })).toEqual(result({ output: bytes.toString() }));
  },
  "a code point split over writes stays whole (SH-27)": async ({ environment }) => {
    const script = "printf '\\342'; sleep 1; printf '\\202'; sleep 1; printf '\\254\\n'";
    expect(
      await Promise.all([
        environment.exec(script),
        environment.exec(`{ ${script}; } >&2`, { output: "separate" }),
      ]),
    ).toEqual([result({ output: "€\n" }), result({ stderr: "€\n" })]);
  },
  "bytes that are no UTF-8 become U+FFFD (SH-29)": async ({ environment }) => {
    expect(await environment.exec("printf '\\377\\376\\000A\\n'")).toEqual(
      result({ output: "\ufffd\ufffd\0A\n" }),
    );
    expect(await environment.exec("printf 'end\\342\\202'")).toMatchObject({
      output: expect.stringMatching(/^end\ufffd+$/),
    });
    expect(await environment.exec("head -c 4096 /dev/urandom")).toMatchObject({ exitCode: 0 });
  },
  "100 KB without a newline arrive": async ({ environment }) => {
    expect(await environment.exec("head -c 100000 /dev/zero | tr '\\000' x")).toEqual(
      result({ output: "x".repeat(100_000) }),
    );
  },
  "100 KB of NUL bytes arrive, and the answer after them": async ({ environment }) => {
    expect(await environment.exec("head -c 100000 /dev/zero; exit 3")).toEqual(
      result({ exitCode: 3, output: "\0".repeat(100_000) }),
    );
  },
  "the last of 200,000 lines is there": async ({ environment }) => {
    const { output, exitCode } = await environment.exec("seq 1 200000; exit 4");
    expect({ exitCode, size: output.length, end: output.slice(-14) }).toEqual({
      exitCode: 4,
      size: 1_288_895,
      end: "199999\n200000\n",
    });
  },
  "text that looks like protocol is text": async ({ environment }) => {
    await using session = await environment.openSession();
    const hex = "0123456789abcdef0123456789abcdef";
    const forged = [
      `\0${hex} 0\0`,
      `\0${hex}\x000\0`,
      `__MOORAGE_END_${hex}__:0\n`,
      `${hex}0`,
      `\0${hex.slice(0, 31)}`,
      "\0\0\0\0\0\0\0\x05hello",
      "\x01\0\0\0\0\0\0\x05hello",
      "\x02\0\0\0\xff\xff\xff\xff",
      '\x1e{"exitCode":0}\x1e',
      "EOF\n",
      "\x04\x03\x1a",
      "\0",
    ];
    for (const text of forged) {
      expect(await session.exec("cat; exit 9", { stdin: text })).toEqual(
        result({ exitCode: 9, output: text }),
      );
    }
  },
  "the shell's own variables and arguments forge nothing": async ({ environment }) => {
    await using session = await environment.openSession();
    // A bare sh has its own name, or nothing, there.
    expect(await session.exec('echo "$_"')).toMatchObject({ output: expect.stringMatching(/^[-/a-z]*\n$/) });
    const look =
      'set | tr "\\n" "\\0"; export -p; printf "%s\\0" "$@" "$0" "$*"; cat /proc/self/environ /proc/$$/environ 2>/dev/null; cat /proc/$$/cmdline; echo; exit 9';
    for (let call = 0; call < 3; call += 1) {
      expect(await session.exec(look)).toMatchObject({ exitCode: 9, timedOut: false, notes: [] });
    }
    expect(await session.exec("echo on")).toEqual(result({ output: "on\n" }));
  },
  "bytes written to other descriptors of the shell forge nothing": async ({ environment }) => {
    await using session = await environment.openSession();
    await session.exec("cd /; export KEPT=1");
    const junk =
      'for fd in 3 4 5 6 7 8 9; do { printf "0\\n\\0000\\000cwd=/etc\\n" >&$fd; } 2>/dev/null; done; echo own; exit 3';
    expect(await session.exec(junk)).toMatchObject({ exitCode: 3, output: "own\n" });
    expect(await session.exec('pwd; echo "$KEPT"')).toEqual(result({ output: "/\n1\n", cwd: "/" }));
  },
  "bytes written to any descriptor of bash forge nothing": inBash(async ({ environment }) => {
    await using session = await environment.openSession();
    await session.exec("cd /; export KEPT=1");
    const junk =
      'trap "" PIPE; for ((fd = 3; fd < 256; fd++)); do { printf "0\\n\\0000\\000cwd=/etc\\n" >&$fd; } 2>/dev/null; done; echo own; exit 3';
    expect(await session.exec(junk)).toMatchObject({ exitCode: 3, output: expect.stringMatching(/own\n$/) });
    expect(await session.exec('pwd; echo "$KEPT"')).toEqual(result({ output: "/\n1\n", cwd: "/" }));
  }),
  "a flood is bounded, counted and kept in full elsewhere (SH-31)": async ({ environment }) => {
    const size = 20_000_000;
    const flood = await environment.exec(`head -c ${size} /dev/zero | tr '\\000' x; echo END; exit 2`, {
      captureBytes: 50_000,
    });
    expect(flood).toEqual(
      result({
        exitCode: 2,
        output: expect.stringMatching(/^x{1000}[\s\S]*x{1000}END\n$/),
        truncated: { output: { totalBytes: size + 4, omittedBytes: expect.any(Number) } },
        outputId: expect.any(String),
      }),
    );
    expect(Buffer.byteLength(flood.output)).toBeLessThan(51_000);
    const omitted = flood.truncated.output?.omittedBytes ?? 0;
    expect(omitted).toBeGreaterThanOrEqual(size + 4 - 50_000);
    expect(omitted).toBeLessThan(size);
    const full = await readAll(environment, flood.outputId ?? "", 3_000_000);
    expect(full.length).toBe(size + 4);
    expect(full.endsWith("xEND\n")).toBe(true);
    expect(/^x+END\n$/.test(full)).toBe(true);
  },
  "the default bound holds for 40 MB": async ({ environment }) => {
    const { truncated, output } = await environment.exec(
      "head -c 40000000 /dev/zero | tr '\\000' y; echo END",
    );
    expect(truncated.output?.totalBytes).toBe(40_000_004);
    expect(output.length).toBeLessThan(2_000_000);
    expect(output.endsWith("yEND\n")).toBe(true);
  },
  "head and tail both show, errors at the end too (SH-32)": async ({ environment }) => {
    const { output, exitCode } = await environment.exec("seq 1 100000; echo FATAL >&2; exit 2", {
      captureBytes: 20_000,
    });
    expect(exitCode).toBe(2);
    expect(output).toMatch(/^1\n2\n3\n/);
    expect(output).toMatch(/99999\n100000\nFATAL\n$/);
  },
  "streams apart are bounded apart": async ({ environment }) => {
    const both = await environment.exec("seq 1 50000; seq 1 60000 >&2; seq 1 9", {
      output: "separate",
      captureBytes: 10_000,
    });
    expect(both.truncated).toEqual({
      stdout: { totalBytes: 288_894 + 18, omittedBytes: expect.any(Number) },
      stderr: { totalBytes: 348_894, omittedBytes: expect.any(Number) },
    });
    expect(both.stdout).toMatch(/^1\n2\n[\s\S]*\n50000\n1\n2\n3\n4\n5\n6\n7\n8\n9\n$/);
    expect(both.stderr).toMatch(/^1\n2\n[\s\S]*\n60000\n$/);
    const small = await environment.exec("echo small; seq 1 60000 >&2", {
      output: "separate",
      captureBytes: 10_000,
    });
    expect(small.truncated).toEqual({ stderr: { totalBytes: 348_894, omittedBytes: expect.any(Number) } });
    expect(small.stdout).toBe("small\n");
  },
  "a cut falls between code points (SH-28)": async ({ environment }) => {
    for (const unit of ["你", "😀"]) {
      for (let lead = 0; lead < 4; lead += 1) {
        const stdin = `${"a".repeat(lead)}${unit.repeat(5_000)}`;
        const { output, truncated } = await environment.exec("cat", { stdin, captureBytes: 4_001 });
        expect(output).not.toContain("\ufffd");
        expect(output.isWellFormed()).toBe(true);
        expect(truncated.output?.totalBytes).toBe(Buffer.byteLength(stdin));
        expect(output.startsWith(`${"a".repeat(lead)}${unit}`) && output.endsWith(unit)).toBe(true);
      }
    }
  },
  "a flood until the timeout is bounded in memory (SH-30)": async ({ environment }) => {
    const before = process.memoryUsage().rss;
    const flood = await environment.exec("yes", { timeoutMs: 3_000, captureBytes: 50_000 });
    expect(flood).toEqual(
      cut("timedOut", {
        output: expect.stringMatching(/^y\ny\n/),
        truncated: { output: { totalBytes: expect.any(Number), omittedBytes: expect.any(Number) } },
        outputId: expect.any(String),
      }),
    );
    expect(process.memoryUsage().rss - before).toBeLessThan(150 * 1024 * 1024);
  },
  "an output that was cut can be read from any byte": async ({ environment }) => {
    const { outputId } = await environment.exec("seq 1 20000", { captureBytes: 1_000 });
    const id = outputId ?? "";
    expect(await environment.outputs.read(id, { offset: 9, maxBytes: 6 })).toEqual({
      text: "\n6\n7\n8",
      offset: 9,
      nextOffset: 15,
      totalBytes: 108_894,
    });
    expect((await environment.outputs.read(id, { offset: -6, maxBytes: 100 })).text).toBe("20000\n");
    expect((await environment.outputs.read(id, { offset: 1_000_000 })).text).toBe("");
  },
  "an output that is not there is told as such": async ({ environment }) => {
    await expectCode(environment.outputs.read(token()), "PROCESS_MISSING");
    await expectCode(environment.outputs.read("../../etc/passwd"), "PROCESS_MISSING");
  },
  "chunks arrive while the command runs": async ({ environment }) => {
    const folder = environment.workspace;
    const name = token();
    const seen: string[] = [];
    const running = environment.exec(
      `echo first; until [ -e ${folder}/${name} ]; do sleep 1; done; echo last`,
      {
        timeoutMs: 20_000,
        onOutput: async ({ stream, data }: OutputChunk) => {
          seen.push(`${stream} ${Buffer.from(data).toString()}`);
          if (seen.length === 1) await environment.files.writeFile(`${folder}/${name}`, "");
        },
      },
    );
    expect(await running).toEqual(result({ output: "first\nlast\n" }));
    expect(seen).toEqual(["output first\n", "output last\n"]);
  },
  "chunks tell their stream": async ({ environment }) => {
    const parts = { output: "", stdout: "", stderr: "" };
    await environment.exec("echo a; echo b >&2; echo c", {
      output: "separate",
      onOutput: ({ stream, data }) => {
        parts[stream] += Buffer.from(data).toString();
      },
    });
    expect(parts).toEqual({ output: "", stdout: "a\nc\n", stderr: "b\n" });
  },
  "a slow reader gets every byte": async ({ environment }) => {
    let bytes = 0;
    let busy = 0;
    const { exitCode } = await environment.exec("head -c 4000000 /dev/zero", {
      captureBytes: 1_000,
      onOutput: async ({ data }) => {
        busy += 1;
        expect(busy).toBe(1);
        await delay(2);
        bytes += data.byteLength;
        busy -= 1;
      },
    });
    expect({ exitCode, bytes }).toEqual({ exitCode: 0, bytes: 4_000_000 });
  },
  "20 sessions at once never mix their output": async ({ environment }) => {
    const outcomes = await Promise.all(
      Array.from({ length: 20 }, async (_, index) => {
        await using session = await environment.openSession();
        const line = `line of ${index} ${"-".repeat(40)}`;
        const { output } = await session.exec(
          `i=0; while [ $i -lt 300 ]; do echo '${line}'; i=$((i+1)); done`,
        );
        return output === `${line}\n`.repeat(300);
      }),
    );
    expect(outcomes).toEqual(outcomes.map(() => true));
  },
} satisfies Cases;
