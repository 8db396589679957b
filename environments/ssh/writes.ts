/**
 * What is written to a transport: gathered, so that the pieces of one packet leave together, and counted, so that a
 * loss can tell what the server cannot have received.
 */
import { Socket } from "node:net";
import type { Duplex } from "node:stream";

export interface Writes {
  /** A point in what was given to the transport. */
  readonly position: number;
  /** Whether all up to this point may have left; false is a proof that its last piece did not. */
  hasTaken(position: number): boolean;
}

/** A flood is not gathered for longer, so that the server works on its start while we encrypt its end, bytes. */
const GATHERED_BYTES = 131_072;

/**
 * The library writes an encrypted packet in up to three pieces, of which each would be a system call and, without
 * Nagle's delay, a segment by itself that wakes the server. Those of one turn of the event loop become one write.
 */
export function gatherWrites(transport: Duplex): Writes {
  let written = 0;
  let taken = 0;
  /** Null while nothing is gathered. */
  let gatheredBytes: number | null = null;
  const write = transport.write.bind(transport);
  transport.write = (chunk: string | Uint8Array, ...rest: unknown[]) => {
    written += 1;
    if (gatheredBytes === null) {
      gatheredBytes = 0;
      transport.cork();
      process.nextTick(() => {
        gatheredBytes = null;
        transport.uncork();
      });
    }
    gatheredBytes += chunk.length;
    const [encoding] = rest;
    // Of the two signatures that the library uses.
    const hasRoom = typeof encoding === "string" ? write(chunk, encoding as BufferEncoding) : write(chunk);
    if (gatheredBytes >= GATHERED_BYTES) {
      gatheredBytes = 0;
      transport.uncork();
      transport.cork();
    }
    return hasRoom;
  };

  const count = (pieces: readonly unknown[], callback: (error?: Error | null) => void) => {
    const end = taken + pieces.length;
    return (error?: Error | null) => {
      // Of a write that failed the kernel may have taken all but the end.
      taken = error ? end - 1 : end;
      callback(error);
      if (!error) for (const piece of pieces) giveBack(piece);
    };
  };
  const writeOne = transport._write.bind(transport);
  transport._write = (chunk, encoding, callback) => writeOne(chunk, encoding, count([chunk], callback));
  const writeMany = transport._writev?.bind(transport);
  transport._writev = (chunks, callback) => {
    const done = count(
      chunks.map(({ chunk }) => chunk),
      callback,
    );
    if (writeMany) writeMany(chunks, done);
    else writeOne(Buffer.concat(chunks.map(({ chunk }) => chunk)), "utf8", done);
  };
  // What a channel has taken may still wait in the connection that carries it: nothing can be proved.
  const isProof = transport instanceof Socket;
  return {
    get position() {
      return written;
    },
    hasTaken: (position) => !isProof || taken >= position,
  };
}

/** Below this a packet's memory is not worth the call; what the library writes and keeps is far smaller, bytes. */
const LARGE_BYTES = 16_384;

/**
 * Frees a packet's memory once it is sent: left to the collector, each 64 MiB of packets would cost a collection of
 * everything. A packet is the library's own, made for this one write.
 */
function giveBack(piece: unknown): void {
  if (!(piece instanceof Uint8Array) || !(piece.buffer instanceof ArrayBuffer)) return;
  if (piece.byteLength < LARGE_BYTES || piece.byteLength !== piece.buffer.byteLength) return;
  piece.buffer.transfer(0);
}
