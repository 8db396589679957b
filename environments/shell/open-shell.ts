/** Opens a resident shell: starts its program, greets it, and hears what it is like. */
import { MoorageError } from "../../src/errors.ts";
import { setDeadline } from "../deadline.ts";
import { drained } from "./drained.ts";
import { parseExports } from "./exports.ts";
import { createNonce, type Frame, FrameSplitter } from "./frames.ts";
import { parseHello, type WorkerFacts } from "./greeting.ts";
import { openWithLogin } from "./login.ts";
import { FRAME, type ShellKind } from "./phrases.ts";
import { BASH_BOOT_ARGV, bootArgv, helloScript, wire } from "./script.ts";
import type { ShellStream } from "./stream.ts";
import { type KnownShells, WORKER_MARKER } from "./worker.ts";

export interface ResidentOptions {
  readonly id: string;
  readonly shell: ShellKind | "auto";
  /** Shell functions defined once. */
  readonly library: string;
  /** Script that the shell runs when its stream ends without `close`. */
  readonly atLoss?: string;
  /** Script that the shell runs at `close`. */
  readonly atClose?: string;
  readonly login: boolean;
  /** @default nothing is known */
  readonly known?: KnownShells | undefined;
  readonly open: (
    argv: readonly string[],
    env: Readonly<Record<string, string>>,
    greeting: string,
  ) => Promise<ShellStream>;
}

/** A shell that has greeted, on a stream that nobody reads yet. */
export interface OpenShell {
  readonly stream: ShellStream;
  readonly facts: WorkerFacts;
  /** Processes that its reaper had adopted by then. */
  readonly orphans: readonly number[];
  /** Script for its end; null when there is nothing to do first. */
  readonly farewell: string | null;
  /** Why there is no login environment although one was asked for. */
  readonly loginProblem: string | null;
}

/** How long a new shell's greeting waits unread, milliseconds. */
const HELLO_PAUSE_MS = 20;

/**
 * @throws {MoorageError} what the backend's `openStream` throws; SHELL_MISSING when no shell answers;
 * ENVIRONMENT_UNAVAILABLE when none answers in time
 */
export function openShell(options: ResidentOptions): Promise<OpenShell> {
  return openWithLogin(options.login, (login, timeoutMs) => open({ ...options, login }, timeoutMs));
}

async function open(options: ResidentOptions, timeoutMs: number): Promise<Omit<OpenShell, "loginProblem">> {
  const nonce = createNonce();
  const loginNonce = options.login ? createNonce() : null;
  const { shell, library, atLoss, known } = options;
  const direct = known?.bash === true && shell !== "sh" && loginNonce === null;
  const argv = direct ? BASH_BOOT_ARGV : bootArgv(shell, loginNonce);
  // Which shell answers is not known yet; one that reads a script finds no program by the name of a number.
  // Other shells than bash know no descriptor above 9.
  const unwanted = direct ? known.unwanted?.filter((descriptor) => descriptor > 9) : [];
  const greet = `${helloScript(nonce, { library, atLoss, reaper: known?.reaper, unwanted })}\n`;
  const greeting = wire("bash", greet);
  const stream = await options.open(argv, { [WORKER_MARKER]: options.id }, greeting);
  const farewell = farewellOf(options);
  const splitters = [new FrameSplitter(nonce), ...(loginNonce ? [new FrameSplitter(loginNonce)] : [])];
  let login: ReadonlyMap<string, string> | null = null;
  const numberMissing = new RegExp(`^.*\\b${greet.length}: .*\\n?`, "m");
  let noise = "";
  const gather = (chunk: Buffer) => {
    noise = (noise + chunk.toString("utf8")).slice(-2_000);
  };
  const hello = new Promise<Frame>((resolve, reject) => {
    const cancel = setDeadline(timeoutMs, () => {
      const why = `Cannot open a shell: no answer within ${timeoutMs} ms`;
      reject(new MoorageError("ENVIRONMENT_UNAVAILABLE", why, { details: { phase: "hello" } }));
    });
    stream.stderr.on("data", function read(chunk: Buffer) {
      gather(chunk);
      for (const splitter of splitters) {
        for (const part of splitter.push(chunk)) {
          if (Buffer.isBuffer(part)) continue;
          if (part.kind === FRAME.login) login = parseExports(part.fields.join("\0"));
          if (part.kind === FRAME.hello) {
            cancel();
            stream.stderr.off("data", read);
            stream.stdout.off("data", gather);
            resolve(part);
          }
        }
      }
    });
    stream.stdout.on("data", gather);
    // Written line by line, each of which would wake us: it is read once all is there, or the shell takes longer.
    stream.stderr.pause();
    const later = setTimeout(() => stream.stderr.resume(), HELLO_PAUSE_MS);
    const listen = () => {
      clearTimeout(later);
      stream.stderr.resume();
    };
    stream.stdout.once("data", listen);
    void stream.ended.then(async (end) => {
      cancel();
      listen();
      // An engine that cannot start the program says why on stdout.
      await drained(stream);
      stream.stdout.off("data", gather);
      const said = noise.replace(numberMissing, "").trim();
      reject(
        end.lost ??
          new MoorageError(
            end.exitCode === 127 || /no such file|not found/i.test(said)
              ? "SHELL_MISSING"
              : "ENVIRONMENT_UNAVAILABLE",
            `Cannot open a shell: /bin/sh ended with code ${end.exitCode}${said === "" ? "" : `: ${said}`}`,
            {
              details: { phase: "hello", exitCode: end.exitCode },
            },
          ),
      );
    });
  });
  if (!stream.isGreeted) stream.stdin.write(greeting, "latin1");
  let fields: readonly string[];
  try {
    fields = (await hello).fields;
  } catch (error) {
    // A slow profile is left to end by itself: killed in its middle it may leave a lock behind. A shell that is only
    // slow has its orchestrator, and must not take this end for a loss.
    if (farewell === null) stream.stdin.end();
    else stream.stdin.end(wire("bash", `${farewell}\n`), "latin1");
    stream.stdout.resume();
    stream.stderr.resume();
    void stream.ended.then(() => stream.close());
    throw error;
  }
  const { facts, orphans } = parseHello(fields, login);
  return { stream, facts, orphans, farewell };
}

function farewellOf({ atLoss, atClose }: ResidentOptions): string | null {
  const steps = [
    ...(atLoss === undefined ? [] : ["trap - EXIT"]),
    ...(atClose === undefined ? [] : [atClose]),
  ];
  return steps.length === 0 ? null : steps.join("\n");
}
