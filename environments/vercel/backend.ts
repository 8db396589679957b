/** A sandbox behind the Vercel Sandbox API: made or found, prolonged, resumed after its session ended, removed. */
import { APIError, Sandbox } from "@vercel/sandbox";
import { MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import type { Capability, EnvironmentProgress, Health } from "../base.ts";
import { ownerLabel } from "../owner.ts";
import type { Recovery, ScriptBackend, ScriptRequest } from "../shell/backend.ts";
import type { StreamEnd } from "../shell/stream.ts";
import { type ClientFetch, type CommandTap, createClientFetch } from "./fetch.ts";
import {
  checkVercelOptions,
  readCredentials,
  toNetworkPolicy,
  type VercelCredentials,
  type VercelOptions,
} from "./settings.ts";

/** What the environment is called, and whether it outlives us. */
export interface VercelOwnership {
  readonly id: string;
  readonly keep: boolean;
}

const CAPABILITIES: ReadonlySet<Capability> = new Set<Capability>([
  "egress:none",
  "egress:allow-list",
  "reattach",
]);
/** Tags by which an owner's sandboxes are found again. */
export const VERCEL_TAGS = { owner: "moorage-owner", id: "moorage-id", keep: "moorage-keep" } as const;

export class VercelBackend implements ScriptBackend {
  readonly name = "vercel";
  readonly isolation = "vm";
  readonly capabilities = CAPABILITIES;
  readonly exposedHostPaths: readonly string[] = [];
  /** The API gives each command its final variables. */
  readonly readsLogin = false;
  readonly description: string;
  readonly #options: VercelOptions;
  readonly #ownership: VercelOwnership;
  readonly #client: ClientFetch;
  readonly #sandboxName: string;
  #credentials: VercelCredentials | null = null;
  #sandbox: Sandbox | null = null;
  /** Whether the sandbox is ours to delete. */
  #isMade = false;
  #workspace: string;
  /** The caller's own choice of a workspace. */
  readonly #asked: string | null;
  #prolonging: NodeJS.Timeout | undefined;

  constructor(options: VercelOptions, ownership: VercelOwnership, workspace?: string) {
    checkVercelOptions(options);
    this.#options = options;
    this.#ownership = ownership;
    this.#client = createClientFetch(options.baseUrl, options.answerTimeoutMs);
    this.#sandboxName = options.name ?? `moorage-${ownership.id}`;
    this.#asked = workspace ?? null;
    this.#workspace = workspace ?? "/vercel/sandbox";
    this.description = `sandbox ${this.#sandboxName}`;
  }

  get workspace(): string {
    return this.#workspace;
  }

  async start(onProgress: (progress: EnvironmentProgress) => void): Promise<void> {
    // Asking who we are would cost the first command a look at every process above us.
    process.env.VERCEL_TELEMETRY_DISABLED ??= "1";
    this.#credentials = this.#options.credentials ?? readCredentials(process.env);
    onProgress({ message: `Starting sandbox ${this.#sandboxName}` });
    try {
      this.#take((await this.#find()) ?? (await this.#create()));
    } catch (error) {
      throw toSandboxError(error, `Cannot start sandbox "${this.#sandboxName}"`);
    }
  }

  async stop({ keep }: { readonly keep: boolean }): Promise<void> {
    clearInterval(this.#prolonging);
    const sandbox = this.#sandbox;
    this.#sandbox = null;
    // A sandbox that was there before, or is to stay, goes on until its time is up.
    if (!sandbox || keep || !this.#isMade) return;
    try {
      await sandbox.delete();
    } catch (error) {
      if (error instanceof APIError && error.response.status === 404) return;
      throw new MoorageError(
        "CLEANUP_FAILED",
        `Cannot delete sandbox "${this.#sandboxName}": ${textOf(error)}`,
        {
          cause: error,
        },
      );
    }
  }

  async runScript({ argv, env, files, onData }: ScriptRequest): Promise<StreamEnd> {
    const [cmd = "", ...args] = argv;
    const tap: CommandTap = { onData, mayHaveRun: false, failure: null };
    try {
      // The session's own members, since the sandbox's would resume and run again by themselves.
      const session = this.#requireSandbox().currentSession();
      if (files.length > 0) {
        await session.writeFiles(files.map(({ path, bytes }) => ({ path, content: bytes, mode: 0o600 })));
      }
      const { exitCode } = await this.#client.tapped(tap, () =>
        session.runCommand({ cmd, args, cwd: "/", env }),
      );
      return { exitCode, signal: null, lost: null };
    } catch (error) {
      return { exitCode: null, signal: null, lost: describeLoss(error, tap) };
    }
  }

  async health(): Promise<Health> {
    try {
      const sandbox = await this.#get(false);
      if (sandbox.status === "running") return { healthy: true };
      return { healthy: true, detail: `The sandbox is ${sandbox.status}; it is resumed by the next command` };
    } catch (error) {
      const { code, message, suggestion } = toSandboxError(error, "The sandbox cannot be used");
      return { healthy: false, code, reason: message, suggestion };
    }
  }

  async recover(error: MoorageError): Promise<Recovery | null> {
    if (error.code !== "ENVIRONMENT_LOST" || !this.#sandbox) return null;
    try {
      this.#take(await this.#get(true));
      return {
        note: `The session of sandbox ${this.#sandboxName} had ended and was resumed; what ran in it is gone, and files are as they were last saved`,
      };
    } catch (failure) {
      const isGone = failure instanceof APIError && [404, 410].includes(failure.response.status);
      if (!isGone || !this.#isMade)
        throw toSandboxError(failure, `Cannot resume sandbox "${this.#sandboxName}"`);
    }
    try {
      await this.#sandbox.delete();
    } catch (failure) {
      if (!(failure instanceof APIError) || failure.response.status !== 404) {
        throw toSandboxError(failure, `Cannot replace sandbox "${this.#sandboxName}"`);
      }
    }
    this.#take(await this.#create());
    return { note: `Sandbox ${this.#sandboxName} was gone and was made anew; its files are lost` };
  }

  #params() {
    const credentials = this.#credentials ?? this.#options.credentials ?? readCredentials(process.env);
    return { ...credentials, fetch: this.#client.fetch };
  }

  #get(resume: boolean): Promise<Sandbox> {
    return Sandbox.get({ ...this.#params(), name: this.#sandboxName, resume });
  }

  /** Null when there is none of that name. */
  async #find(): Promise<Sandbox | null> {
    if ((this.#options.name ?? null) === null && !this.#ownership.keep) return null;
    try {
      const sandbox = await this.#get(true);
      this.#isMade = sandbox.tags?.[VERCEL_TAGS.id] === this.#ownership.id;
      const { egress } = this.#options;
      if (egress !== undefined) await sandbox.update({ networkPolicy: toNetworkPolicy(egress) });
      return sandbox;
    } catch (error) {
      if (error instanceof APIError && error.response.status === 404) return null;
      throw error;
    }
  }

  async #create(): Promise<Sandbox> {
    const { egress, runtime } = this.#options;
    const { id, keep } = this.#ownership;
    const sandbox = await Sandbox.create({
      ...this.#params(),
      name: this.#sandboxName,
      timeout: this.#sessionTimeoutMs,
      persistent: true,
      tags: { [VERCEL_TAGS.owner]: ownerLabel(), [VERCEL_TAGS.id]: id, [VERCEL_TAGS.keep]: String(keep) },
      ...(egress !== undefined && { networkPolicy: toNetworkPolicy(egress) }),
      ...(runtime !== undefined && { runtime }),
    });
    this.#isMade = true;
    return sandbox;
  }

  get #sessionTimeoutMs(): number {
    return this.#options.sessionTimeoutMs ?? limits.vercelTimeoutMs;
  }

  #take(sandbox: Sandbox): void {
    this.#sandbox = sandbox;
    this.#workspace = this.#asked ?? sandbox.currentSession().cwd;
    clearInterval(this.#prolonging);
    const everyMs = this.#sessionTimeoutMs / 2;
    this.#prolonging = setInterval(() => {
      // The next command finds out, and says so, when the session has ended.
      sandbox
        .currentSession()
        .extendTimeout(everyMs)
        .catch(() => {});
    }, everyMs);
    this.#prolonging.unref();
  }

  #requireSandbox(): Sandbox {
    if (this.#sandbox) return this.#sandbox;
    throw new MoorageError("ENVIRONMENT_STOPPED", `Cannot run: sandbox ${this.#sandboxName} is not started`);
  }
}

/** Whether the command ran is told by the request, what to do about it by the answer. */
function describeLoss(error: unknown, tap: CommandTap): MoorageError {
  if (tap.mayHaveRun) {
    return new MoorageError(
      "EXECUTION_UNKNOWN",
      `The sandbox's answer broke off: ${tap.failure ?? textOf(error)}`,
      {
        cause: error,
      },
    );
  }
  const known = toSandboxError(error, "The sandbox did not run it");
  return new MoorageError(known.code, known.message, { cause: error, details: { undelivered: true } });
}

/** Any failure of the client as one of ours. */
export function toSandboxError(error: unknown, action: string): MoorageError {
  if (error instanceof MoorageError) return error;
  const say = (code: ConstructorParameters<typeof MoorageError>[0]): MoorageError =>
    new MoorageError(code, `${action}: ${textOf(error)}`, { cause: error });
  if (!(error instanceof APIError)) return say("ENVIRONMENT_UNAVAILABLE");
  switch (error.response.status) {
    case 404:
    case 410:
    case 422:
      return say("ENVIRONMENT_LOST");
    case 400:
    case 401:
    case 402:
    case 403:
      return say("VERCEL_REFUSED");
    default:
      return say("ENVIRONMENT_UNAVAILABLE");
  }
}

/** In the server's own words, where it has any. */
function textOf(error: unknown): string {
  if (error instanceof APIError) {
    const body: unknown = error.json;
    const isTold = typeof body === "object" && body !== null && "error" in body;
    const told: unknown = isTold ? body.error : null;
    if (typeof told === "object" && told !== null && "message" in told) return String(told.message);
  }
  return error instanceof Error ? error.message : String(error);
}
