import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { createNonce, type Frame, FrameSplitter } from "../../../environments/shell/frames.ts";

/** Feeds `bytes` in pieces of the given sizes, cycled. */
function split(nonce: string, bytes: Buffer, sizes: readonly number[]): { data: Buffer; frames: Frame[] } {
  const splitter = new FrameSplitter(nonce);
  const data: Buffer[] = [];
  const frames: Frame[] = [];
  for (let at = 0, turn = 0; at < bytes.length; turn += 1) {
    const size = sizes[turn % sizes.length] ?? 1;
    for (const part of splitter.push(bytes.subarray(at, at + size))) {
      if (Buffer.isBuffer(part)) data.push(Buffer.from(part));
      else frames.push(part);
    }
    at += size;
  }
  data.push(splitter.flush());
  return { data: Buffer.concat(data), frames };
}

function frameBytes(nonce: string, kind: string, fields: readonly string[]): Buffer {
  return Buffer.from(`\0${nonce}${kind}${fields.join("\0")}\0${nonce};`, "latin1");
}

describe("FrameSplitter", () => {
  it("gives every byte and every frame back, however the stream is cut", () => {
    const nonce = createNonce();
    // Bytes that look like the beginning of a frame are the ones to get wrong.
    const piece = fc.oneof(
      fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes)),
      fc
        .integer({ min: 0, max: nonce.length })
        .map((length) => Buffer.from(`\0${nonce.slice(0, length)}`, "latin1")),
    );
    const isPlain = (bytes: Buffer) => bytes.indexOf(Buffer.from(`\0${nonce}`, "latin1")) < 0;
    fc.assert(
      fc.property(
        fc.array(
          fc.tuple(piece, fc.array(fc.stringMatching(/^[a-z\n ]{0,9}$/), { minLength: 1, maxLength: 4 })),
          { maxLength: 5 },
        ),
        fc.array(fc.integer({ min: 1, max: 50 }), { minLength: 1, maxLength: 6 }),
        (parts, sizes) => {
          fc.pre(parts.every(([data]) => isPlain(data)));
          const bytes = Buffer.concat(
            parts.flatMap(([data, fields]) => [data, frameBytes(nonce, "k", fields)]),
          );
          const result = split(nonce, bytes, sizes);
          expect(result.data.equals(Buffer.concat(parts.map(([data]) => data)))).toBe(true);
          expect(result.frames).toEqual(parts.map(([, fields]) => ({ kind: "k", fields })));
        },
      ),
      { numRuns: 500 },
    );
  });

  it("holds back no more than what may begin a frame", () => {
    const splitter = new FrameSplitter("ab".repeat(16));
    expect(splitter.push(Buffer.from("prompt> "))).toEqual([Buffer.from("prompt> ")]);
    expect(splitter.push(Buffer.from("x\0abab"))).toEqual([Buffer.from("x")]);
    expect(splitter.push(Buffer.from("!"))).toEqual([Buffer.from("\0abab!")]);
  });

  it("takes half a frame, whose writer was killed, for none, and the next one for whole", () => {
    const nonce = createNonce();
    const half = Buffer.from(`\0${nonce}sexport A='1`, "latin1");
    const bytes = Buffer.concat([Buffer.from("before"), half, frameBytes(nonce, "e", ["secret", "137"])]);
    for (const size of [1, 5, bytes.length]) {
      expect(split(nonce, bytes, [size])).toEqual({
        data: Buffer.from("before"),
        frames: [{ kind: "e", fields: ["secret", "137"] }],
      });
    }
  });

  it("takes another call's frame for data", () => {
    const bytes = frameBytes(createNonce(), "e", ["0"]);
    expect(split(createNonce(), bytes, [7])).toEqual({ data: bytes, frames: [] });
  });
});
