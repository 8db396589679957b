/** The suite on this machine's bash behind streams that bring what they carry late, or in pieces, as a network may. */
import { mkdtemp } from "node:fs/promises";
import { join } from "node:path";
import { pipeline, Transform, type TransformCallback } from "node:stream";
import { spawnStream } from "../../environments/local/spawn.ts";
import { scrubbedVariables } from "../../environments/local/variables.ts";
import type { ShellBackend } from "../../environments/shell/backend.ts";
import { createShellEnvironment } from "../../environments/shell/environment.ts";
import type { ShellStream } from "../../environments/shell/stream.ts";
import { type Area, describeEnvironment } from "./index.ts";
import { temporaryRoot } from "./root.ts";

/** What a stream does to what it carries. */
export type Carriage = "late" | "inPieces";

/** Longer than a shell takes for its next step, milliseconds. */
const LATE_MS = 4;
/** At most so many pieces of one chunk are bytes alone. */
const PIECES = 40;

const carry: Readonly<Record<Carriage, () => Transform>> = {
  late: () =>
    new Transform({
      transform: (chunk, _encoding, done) => void setTimeout(done, LATE_MS, null, chunk),
    }),
  // One byte a turn at both ends of a chunk, where our frames are.
  inPieces: () =>
    new Transform({
      transform(chunk: Buffer, _encoding, done) {
        const tail = Math.max(PIECES, chunk.length - PIECES);
        const pieces: Buffer[] = [...chunk.subarray(0, PIECES)].map((byte) => Buffer.of(byte));
        if (tail > PIECES) pieces.push(chunk.subarray(PIECES, tail));
        pieces.push(...[...chunk.subarray(tail)].map((byte) => Buffer.of(byte)));
        pushInTurns(this, pieces, done);
      },
    }),
};

function pushInTurns(stream: Transform, pieces: readonly Buffer[], done: TransformCallback): void {
  const [first, ...rest] = pieces;
  if (first === undefined) {
    done();
    return;
  }
  stream.push(first);
  setImmediate(pushInTurns, stream, rest, done);
}

/** Carries one output of a program. */
function carried(from: ShellStream["stdout"], by: Carriage | undefined): ShellStream["stdout"] {
  if (by === undefined) return from;
  // A side that is destroyed, as `close` does, ends both; what a program's end means is told by `ended`.
  return pipeline(from, carry[by](), () => {});
}

/** Registers the suite for streams of that kind. */
export function describeCarriage(
  name: string,
  carriage: Partial<Record<"stdout" | "stderr", Carriage>>,
  areas: readonly Area[],
): void {
  const root = temporaryRoot();
  describeEnvironment({
    name: `bash with ${name}`,
    areas,
    create: async () => {
      const workspace = await mkdtemp(join(root, "workspace-"));
      const backend: ShellBackend = {
        name: "late",
        isolation: "none",
        capabilities: new Set(["pty", "ports"]),
        description: name,
        workspace,
        exposedHostPaths: ["/"],
        start: async () => {},
        stop: async () => {},
        openStream: async ({ argv, env }) => {
          const stream = await spawnStream({
            argv,
            env: { ...scrubbedVariables(process.env), ...env },
            cwd: workspace,
          });
          return {
            ...stream,
            stdout: carried(stream.stdout, carriage.stdout),
            stderr: carried(stream.stderr, carriage.stderr),
          };
        },
        health: async () => ({ healthy: true }),
        recover: async () => null,
      };
      return createShellEnvironment(backend, {
        shell: "bash",
        workspace,
        stateDir: await mkdtemp(join(root, "state-")),
      });
    },
  });
}
