/** What can be said of bytes that were given to a socket, with peers that read, do not read, and are gone. */
import { once } from "node:events";
import { createServer, connect as dialSocket, type Socket } from "node:net";
import { Duplex } from "node:stream";
import { afterEach, beforeEach, expect, it } from "vitest";
import { gatherWrites } from "../../../environments/ssh/writes.ts";
import { until } from "./sshd.ts";

let ours: Socket;
let theirs: Socket;

beforeEach(async () => {
  const server = createServer({ pauseOnConnect: true });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("A TCP server has a port");
  ours = dialSocket({ host: "127.0.0.1", port: address.port, noDelay: true });
  ours.on("error", () => {});
  const [accepted] = await once(server, "connection");
  theirs = accepted;
  theirs.on("error", () => {});
  server.close();
});
afterEach(() => {
  ours.destroy();
  theirs.destroy();
});

it("pieces that are written in one turn leave in one write, in their order", async () => {
  const writes = gatherWrites(ours);
  const batches: number[] = [];
  const many = ours._writev?.bind(ours);
  ours._writev = (chunks, callback) => {
    batches.push(chunks.length);
    many?.(chunks, callback);
  };
  for (const piece of ["head ", "body ", "tail\n"]) ours.write(piece);
  const { position } = writes;
  expect(writes.hasTaken(position)).toBe(false);
  await until(() => writes.hasTaken(position), "the kernel has taken it");
  let read = "";
  theirs.on("data", (chunk) => {
    read += chunk;
  });
  theirs.resume();
  await until(() => read === "head body tail\n", "it has arrived");
  expect(batches).toEqual([3]);
});

it("a flood is not gathered until its end", async () => {
  gatherWrites(ours);
  const batches: number[] = [];
  const many = ours._writev?.bind(ours);
  ours._writev = (chunks, callback) => {
    batches.push(chunks.length);
    many?.(chunks, callback);
  };
  const piece = Buffer.alloc(32_768, "x");
  for (let count = 0; count < 4; count += 1) ours.write(piece);
  expect(batches).toEqual([4]);
});

it("the memory of a large packet is free once it is sent, and no other", async () => {
  const writes = gatherWrites(ours);
  theirs.resume();
  const packet = Buffer.alloc(32_768);
  const small = Buffer.alloc(1_024);
  const whole = Buffer.alloc(65_536);
  const part = whole.subarray(0, 32_768);
  for (const piece of [packet, small, part]) ours.write(piece);
  expect(packet.byteLength).toBe(32_768);
  await until(() => writes.hasTaken(writes.position), "the kernel has taken it");
  expect([packet, small, part].map(({ byteLength }) => byteLength)).toEqual([0, 1_024, 32_768]);
});

it("what a peer that does not read left in our buffer was provably not sent, when the connection breaks", async () => {
  const writes = gatherWrites(ours);
  ours.write("first");
  const first = writes.position;
  await until(() => writes.hasTaken(first), "the kernel has taken the first");
  // More than the buffers of both kernels hold.
  for (let count = 0; count < 64; count += 1) ours.write(Buffer.alloc(1_048_576));
  const flood = writes.position;
  await new Promise((resolve) => setImmediate(resolve));
  ours.write("last");
  const last = writes.position;
  ours.destroy();
  await once(ours, "close");
  expect([first, flood, last].map((position) => writes.hasTaken(position))).toEqual([true, false, false]);
});

it("of a write that failed, all but its end may have been sent", async () => {
  const writes = gatherWrites(ours);
  ours.write("a whole packet");
  const { position } = writes;
  ours.write(Buffer.alloc(64 * 1_048_576));
  await new Promise((resolve) => setImmediate(resolve));
  expect(writes.hasTaken(position)).toBe(false);
  ours.destroy();
  await once(ours, "close");
  expect([position, writes.position].map((point) => writes.hasTaken(point))).toEqual([true, false]);
});

it("a channel of another connection gets the pieces as one, and proves nothing", async () => {
  const got: string[] = [];
  const channel = new Duplex({
    read() {},
    write(chunk, _encoding, callback) {
      got.push(String(chunk));
      callback();
    },
  });
  const writes = gatherWrites(channel);
  channel.write(Buffer.from("head "));
  channel.write(Buffer.from("body"));
  expect(writes.hasTaken(writes.position)).toBe(true);
  await until(() => got.length > 0, "something came");
  expect(got).toEqual(["head body"]);
});
