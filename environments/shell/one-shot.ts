/**
 * Workers for places where a program can only be run to its end: each call is one program, a shell that is given the
 * same text that a resident one would read, and whose outputs are the same frames. Nothing outlives a call, so that a
 * worker costs nothing to have. Our own scripts' outputs travel as base64, since such places carry text.
 */
import { isUtf8 } from "node:buffer";
import { randomBytes } from "node:crypto";
import { MoorageError } from "../../src/errors.ts";
import { setDeadline } from "../deadline.ts";
import type { ScriptRequest } from "./backend.ts";
import type { CallScript } from "./call-script.ts";
import { parseExports, parseState } from "./exports.ts";
import { FILE_LIBRARY } from "./files/library.ts";
import { createNonce, FrameSplitter } from "./frames.ts";
import { parseHello, type WorkerFacts } from "./greeting.ts";
import { openWithLogin } from "./login.ts";
import {
  BASH_ONCE_HEAD,
  BASH_ONCE_VARIABLES,
  bashOnceArgv,
  bornScript,
  ONCE_VARIABLES,
  onceArgv,
  oncePreamble,
  plainOnceScript,
} from "./once-script.ts";
import { OneShotReader, startTicks } from "./one-shot-reader.ts";
import { FRAME, type ShellKind } from "./phrases.ts";
import { type CallText, callScript, helloScript } from "./script.ts";
import type { ShellState } from "./state.ts";
import type { StreamEnd } from "./stream.ts";
import type { CallEnd, CallRequest, CallWorker } from "./worker.ts";

/** A text that may travel as an argument, bytes: the kernel takes one of 128 KiB with its end. */
const ARGUMENT_MAX_BYTES = 120_000;
/** No helper waits beside a shell that ends with its call; see files/rename-assistant.ts. */
const LIBRARY = `${FILE_LIBRARY}\n__moor_replace() { return 1; }`;

export interface OneShotOptions {
  readonly shell: ShellKind | "auto";
  readonly login: boolean;
  /** Name of the variable by which every process of a worker is found. */
  readonly markerName: string;
  readonly run: (request: ScriptRequest) => Promise<StreamEnd>;
}

interface Greeting {
  readonly facts: WorkerFacts;
  /** The path of bash, or its name where that is not told. */
  readonly bash: string;
  /** When the shell that told them began, in ticks since boot; null where that is not known. */
  readonly sinceTicks: string | null;
  readonly loginProblem: string | null;
}

/** What the workers of one environment share: what its shells are like, and whether the place is still there. */
export class OneShotShells {
  readonly #options: OneShotOptions;
  #greeting: Promise<Greeting> | null = null;
  #broken: MoorageError | null = null;
  #generation = 0;

  constructor(options: OneShotOptions) {
    this.#options = options;
  }

  /** Counts the losses of the place: a worker of before one is of no more use. */
  get generation(): number {
    return this.#generation;
  }

  /**
   * @throws {MoorageError} why the place was lost, once after each loss; SHELL_MISSING, ENVIRONMENT_UNAVAILABLE
   */
  async open(id: string, purpose: "user" | "system"): Promise<CallWorker> {
    const broken = this.#broken;
    this.#broken = null;
    if (broken) throw broken;
    this.#greeting ??= this.#greet().catch((error: unknown) => {
      this.#greeting = null;
      throw error;
    });
    return new OneShotWorker(this, id, purpose, await this.#greeting, this.#options);
  }

  /** Forgets what was known of a place that has been replaced. */
  reset(): void {
    this.#broken = null;
    this.#greeting = null;
  }

  /** A call met a place that is gone. */
  lose(error: MoorageError): void {
    this.#broken = error;
    this.#generation += 1;
  }

  #greet(): Promise<Greeting> {
    return openWithLogin(this.#options.login, (login, timeoutMs) => this.#hello(login, timeoutMs));
  }

  async #hello(login: boolean, timeoutMs: number): Promise<Omit<Greeting, "loginProblem">> {
    const nonce = createNonce();
    const loginNonce = login ? createNonce() : null;
    const splitters = [nonce, ...(loginNonce ? [loginNonce] : [])].map((each) => new FrameSplitter(each));
    let variables: ReadonlyMap<string, string> | null = null;
    let fields: readonly string[] | null = null;
    let bash = "";
    let sinceTicks: string | null = null;
    let noise = "";
    const argv = onceArgv(this.#options.shell, { loginNonce, encoded: false });
    const running = this.#options.run({
      argv: [...argv, "", helloScript(nonce, { library: "" }) + bornScript(nonce), "", "", ""],
      env: {},
      files: [],
      onData: (stream, chunk) => {
        if (stream === "stdout") return;
        noise = (noise + chunk.toString("latin1")).slice(-2_000);
        for (const part of splitters.flatMap((splitter) => splitter.push(chunk))) {
          if (Buffer.isBuffer(part)) continue;
          if (part.kind === FRAME.login) variables = parseExports(part.fields.join("\0"));
          if (part.kind === FRAME.hello) fields = part.fields;
          if (part.kind !== FRAME.before) continue;
          const [path = "", stat = ""] = part.fields;
          bash = Buffer.from(path, "latin1").toString("utf8");
          sinceTicks = startTicks(stat);
        }
      },
    });
    const failure = (code: "SHELL_MISSING" | "ENVIRONMENT_UNAVAILABLE", why: string): MoorageError =>
      new MoorageError(code, `Cannot open a shell: ${why}`, { details: { phase: "hello" } });
    const late = Promise.withResolvers<never>();
    const cancel = setDeadline(timeoutMs, () =>
      late.reject(failure("ENVIRONMENT_UNAVAILABLE", `no answer within ${timeoutMs} ms`)),
    );
    const end = await Promise.race([running, late.promise]).finally(cancel);
    if (end.lost) throw end.lost;
    if (fields === null) {
      throw failure("SHELL_MISSING", `/bin/sh ended with code ${end.exitCode}: ${noise.trim()}`);
    }
    const { facts } = parseHello(fields, variables);
    return { facts, bash: bash.startsWith("/") ? bash : "bash", sinceTicks };
  }
}

class OneShotWorker implements CallWorker {
  readonly id: string;
  readonly facts: WorkerFacts;
  readonly loginProblem: string | null;
  readonly shellPid = null;
  readonly ended: Promise<void>;
  readonly #shells: OneShotShells;
  readonly #generation: number;
  readonly #purpose: "user" | "system";
  readonly #options: OneShotOptions;
  readonly #closed = Promise.withResolvers<void>();
  readonly #givingUp = new AbortController();
  /** Settles the call that runs. */
  #giveUp: () => void = () => {};
  /** The last state that was given, and what of it a shell here lacks. */
  #known: { readonly given: ShellState["variables"]; readonly lacking: ShellState["variables"] } | null =
    null;
  readonly #greeting: Greeting;
  #sinceTicks: string | null;

  constructor(
    shells: OneShotShells,
    id: string,
    purpose: "user" | "system",
    greeting: Greeting,
    options: OneShotOptions,
  ) {
    this.id = id;
    this.facts = greeting.facts;
    this.loginProblem = greeting.loginProblem;
    this.#greeting = greeting;
    this.#sinceTicks = greeting.sinceTicks;
    this.#shells = shells;
    this.#generation = shells.generation;
    this.#purpose = purpose;
    this.#options = options;
    this.ended = this.#closed.promise;
  }

  get alive(): boolean {
    return !this.#givingUp.signal.aborted && this.#generation === this.#shells.generation;
  }

  get sinceTicks(): string | null {
    return this.#sinceTicks;
  }

  get marker(): string {
    return `${this.#options.markerName}=${this.id}`;
  }

  async run({ stdin, onData, live = false, ...rest }: CallRequest): Promise<CallEnd> {
    const { shell, reaper } = this.facts;
    const nonce = createNonce();
    const secret = createNonce();
    const stdinBytes = stdin === null ? null : stdin.byteLength;
    const script = { ...rest, shell, nonce, secret, reaper, stdinBytes, once: true };
    const text = onceText({ ...script, state: this.#difference(rest.state) });
    const isSystem = this.#purpose === "system";
    const encoded = isSystem && live ? "live" : isSystem;
    this.#sinceTicks = this.#greeting.sinceTicks;
    const onStart = (ticks: string): void => {
      this.#sinceTicks = ticks;
    };
    const { separate } = rest;
    const settled = Promise.withResolvers<"ended" | StreamEnd>();
    const reader = new OneShotReader({
      nonce,
      secret,
      separate,
      isOneStream: text.isOneStream,
      encoded: isSystem,
      onData,
      onStart,
      onEnd: () => settled.resolve("ended"),
    });
    const preamble = text.preamble + (isSystem ? `\n${LIBRARY}\n` : "");
    const isDirect = shell === "bash" && !isSystem && !this.facts.variables.has("POSIXLY_CORRECT");
    const program =
      (isDirect && packDirectly(this.#greeting.bash, preamble + text.call, stdin)) ||
      packProgram(onceArgv(shell, { loginNonce: null, encoded }), this.#purpose, preamble, text.call, stdin);
    const running = this.#options.run({
      argv: program.argv,
      env: { ...program.env, [this.#options.markerName]: this.id },
      files: program.files,
      onData: (stream, chunk) => reader.take(stream, chunk),
      abortSignal: this.#givingUp.signal,
    });
    // An answer that never ends must not hold a call whose time is up.
    this.#giveUp = () => settled.resolve(GIVEN_UP);
    if (this.#givingUp.signal.aborted) this.#giveUp();
    void running.then(settled.resolve, settled.reject);
    const first = await settled.promise;
    if (first !== "ended") reader.flush();
    const common = {
      dump: reader.dump === null ? null : parseState(reader.dump),
      restored: reader.restored,
      workdirProblem: reader.workdirProblem,
      movedTo: reader.movedTo,
    };
    // A shell that could not enter the folder may have ended by itself, before anything ran.
    if (reader.isComplete || first === "ended" || (reader.workdirProblem !== null && first.lost === null)) {
      // Nothing ran before all was brought back, and which were there before is told with that.
      const newOrphans = reader.restored ? reader.orphans.filter((pid) => !reader.before.has(pid)) : [];
      return {
        ...common,
        kind: "ended",
        exitCode: reader.exitCode,
        signal: null,
        begun: true,
        newOrphans,
        adopted: reader.orphans,
        ownOrphans: reader.holders.filter((pid) => newOrphans.includes(pid)),
        lost: null,
      };
    }
    const { exitCode, signal, lost } = first;
    const begun = lost?.details.undelivered !== true;
    if (lost?.code === "ENVIRONMENT_LOST") this.#shells.lose(lost);
    const kind = lost ? "lost" : "died";
    return { ...common, kind, exitCode, signal, begun, newOrphans: [], adopted: [], lost };
  }

  /** Without what a shell here has anyway. */
  #difference(state: ShellState): ShellState {
    const given = state.variables;
    if (this.#known?.given !== given) {
      const has = this.facts.variables;
      const lacking = [...given].filter(([name, value]) => (has.get(name) ?? null) !== value);
      this.#known = { given, lacking: new Map(lacking) };
    }
    return { ...state, variables: this.#known.lacking };
  }

  async close(): Promise<void> {
    this.#closed.resolve();
    this.#giveUp();
    this.#givingUp.abort();
  }
}

const GIVEN_UP: StreamEnd = {
  exitCode: null,
  signal: null,
  lost: new MoorageError("EXECUTION_UNKNOWN", "The sandbox had not answered when the call was given up"),
};

interface OnceText extends Pick<CallText, "call" | "isOneStream"> {
  readonly preamble: string;
}

function onceText(script: CallScript): OnceText {
  const { command, plain, dump, sound, separate, stdinBytes, reaper } = script;
  if (plain && !dump && !sound && stdinBytes === null && typeof command === "string") {
    return { preamble: "", call: plainOnceScript({ ...script, command }), isOneStream: !separate };
  }
  const { setup, ...text } = callScript(script);
  return { ...text, preamble: oncePreamble(reaper) + (setup === null ? "" : `\n${setup}\n`) };
}

interface Program {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly files: ScriptRequest["files"];
}

/** All of a call of the user's in one variable of one bash; null where it takes more. */
function packDirectly(bash: string, text: string, stdin: Uint8Array | null): Program | null {
  const bytes = Buffer.from(BASH_ONCE_HEAD + text, "latin1");
  if (stdin !== null || !fitsArgument(bytes)) return null;
  return {
    argv: bashOnceArgv(bash),
    env: { ...BASH_ONCE_VARIABLES, [ONCE_VARIABLES.call]: bytes.toString("utf8") },
    files: [],
  };
}

function fitsArgument(bytes: Buffer): boolean {
  return bytes.length <= ARGUMENT_MAX_BYTES && isUtf8(bytes);
}

/**
 * A call of the user's, which may hold secrets, travels in variables; a script of ours in arguments, since it may name
 * markers, and what carries one in its variables is taken for what it marks.
 *
 * @param start a program by `onceArgv`
 */
function packProgram(
  start: readonly string[],
  purpose: "user" | "system",
  preamble: string,
  call: string,
  stdin: Uint8Array | null,
): Program {
  const texts = [preamble, call].map((text) => Buffer.from(text, "latin1"));
  const path = (name: string): string => `/tmp/.moorage-${randomBytes(12).toString("hex")}-${name}`;
  const input = stdin === null ? [] : [{ path: path("in"), bytes: stdin }];
  const inputPath = input[0]?.path ?? "";
  // What is no text or too long for an argument goes by file.
  if (!texts.every(fitsArgument)) {
    const scripts = texts.map((bytes, at) => ({ path: path(String(at)), bytes }));
    const argv = [...start, "", "", inputPath, ...scripts.map((file) => file.path)];
    return { argv, env: {}, files: [...input, ...scripts] };
  }
  const [first = "", second = ""] = texts.map((text) => text.toString("utf8"));
  if (purpose === "system")
    return { argv: [...start, first, second, inputPath, "", ""], env: {}, files: input };
  const env = { [ONCE_VARIABLES.preamble]: first, [ONCE_VARIABLES.call]: second };
  return { argv: [...start, "", "", inputPath, "", ""], env, files: input };
}
