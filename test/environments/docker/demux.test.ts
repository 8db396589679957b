import { PassThrough } from "node:stream";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Demultiplexer } from "../../../environments/docker/demux.ts";
import { frame } from "./fake-daemon.ts";
import { until } from "./read-stream.ts";

function collect(demux: Demultiplexer) {
  const out: Buffer[] = [];
  const err: Buffer[] = [];
  demux.stdout.on("data", (chunk: Buffer) => out.push(chunk));
  demux.stderr.on("data", (chunk: Buffer) => err.push(chunk));
  return () => ({
    stdout: Buffer.concat(out).toString("latin1"),
    stderr: Buffer.concat(err).toString("latin1"),
  });
}

async function feed(chunks: readonly Buffer[], tty = false) {
  const source = new PassThrough();
  const demux = new Demultiplexer(source, { tty });
  const read = collect(demux);
  for (const chunk of chunks) {
    source.write(chunk);
    await new Promise(setImmediate);
  }
  source.end();
  const end = await demux.ended;
  await until(() => demux.stderr.readableEnded);
  return { ...read(), ...end };
}

describe("Demultiplexer", () => {
  it("gives each stream its bytes wherever the connection splits them", async () => {
    const frames = fc.array(
      fc.record({ kind: fc.integer({ min: 0, max: 2 }), payload: fc.uint8Array({ maxLength: 40 }) }),
      { maxLength: 12 },
    );
    await fc.assert(
      fc.asyncProperty(frames, fc.array(fc.nat(), { maxLength: 12 }), async (list, cuts) => {
        const bytes = Buffer.concat(list.map(({ kind, payload }) => frame(kind, payload)));
        const at = [...new Set(cuts.map((cut) => cut % (bytes.length + 1)))].sort((a, b) => a - b);
        const chunks = [0, ...at].map((start, index) => bytes.subarray(start, at[index] ?? bytes.length));
        const expected = (wanted: (kind: number) => boolean) =>
          Buffer.concat(list.filter(({ kind }) => wanted(kind)).map(({ payload }) => payload)).toString(
            "latin1",
          );
        expect(await feed(chunks.filter((chunk) => chunk.length > 0))).toEqual({
          stdout: expected((kind) => kind !== 2),
          stderr: expected((kind) => kind === 2),
          broken: null,
          engineText: null,
        });
      }),
      { numRuns: 150 },
    );
  });

  it.each(["\x01ABCDEFGHIJ", "\x02xyz12345", "\x01\0\0\0\0\0\0\x04abcd"])(
    "passes %j through raw with a terminal (DK-03)",
    async (text) => {
      const bytes = [Buffer.from(text, "latin1")];
      expect(await feed(bytes, true)).toEqual({ stdout: text, stderr: "", broken: null, engineText: null });
    },
  );

  it.each([
    ["inside a header", frame(1, "hello").subarray(0, 3)],
    ["inside a payload", frame(1, "hello").subarray(0, 10)],
    ["after a whole frame and a part", Buffer.concat([frame(1, "hello"), Buffer.from([2])])],
  ])("tells an end %s and keeps what came", async (_where, bytes) => {
    const ended = await feed([bytes]);
    expect(ended).toEqual({
      stdout: "hello".slice(0, Math.max(0, bytes.length - 8)),
      stderr: "",
      broken: "the stream ended inside a frame",
      engineText: null,
    });
  });

  it("does not take raw bytes for frames", async () => {
    expect((await feed([Buffer.from("plain text, no frames")])).broken).toMatch(/unknown kind 112/);
  });

  it("tells a failure that the engine reports inside the stream", async () => {
    expect((await feed([frame(1, "some"), frame(3, "disk full")])).broken).toBe(
      "the engine reported: disk full",
    );
  });

  it("holds the source back while a reader lags, and lets it go on", async () => {
    const source = new PassThrough();
    const demux = new Demultiplexer(source, { tty: false });
    const block = frame(1, Buffer.alloc(64 * 1024));
    let sent = 0;
    const send = () => {
      while (sent < 400) {
        sent += 1;
        if (!source.write(block)) {
          source.once("drain", send);
          return;
        }
      }
      source.end();
    };
    send();
    await until(() => demux.paused);
    const sentWhilePaused = sent;
    expect(sentWhilePaused).toBeLessThan(40);
    let received = 0;
    demux.stdout.on("data", (chunk: Buffer) => {
      received += chunk.length;
    });
    demux.stderr.resume();
    await demux.ended;
    await until(() => received === 400 * 64 * 1024);
  });

  it("goes on for one reader when the other has left", async () => {
    const source = new PassThrough();
    const demux = new Demultiplexer(source, { tty: false });
    const read = collect(demux);
    demux.stderr.destroy();
    for (let index = 0; index < 40; index += 1) source.write(frame(2, Buffer.alloc(64 * 1024)));
    source.end(frame(1, "still here"));
    await demux.ended;
    await until(() => read().stdout === "still here");
  });

  it("keeps the engine's report that a program did not start apart from its output", async () => {
    const source = new PassThrough();
    const demux = new Demultiplexer(source, { tty: false });
    const read = collect(demux);
    source.end(frame(1, "OCI runtime exec failed: exec failed: no such file\r\n"));
    expect(await demux.ended).toEqual({
      broken: null,
      engineText: "OCI runtime exec failed: exec failed: no such file",
    });
    demux.settleReport(true);
    await until(() => demux.stdout.readableEnded);
    expect(read().stdout).toBe("");
  });

  it("lets a program print the engine's words", async () => {
    const source = new PassThrough();
    const demux = new Demultiplexer(source, { tty: false });
    const read = collect(demux);
    const text = "OCI runtime exec failed: is what I say\n";
    source.write(frame(1, text));
    await until(() => read().stdout === text);
    source.end(frame(1, "and more"));
    expect((await demux.ended).engineText).toBeNull();
    await until(() => read().stdout === `${text}and more`);
  });
});
