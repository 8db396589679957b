/** A sandbox behind the Vercel Sandbox API: made or found, prolonged, resumed after its session ended, removed. */
import { Sandbox } from "@vercel/sandbox";
import { MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import type { Capability, EgressPolicy, EnvironmentProgress, Health } from "../base.ts";
import { judgeOwner, ownerLabel } from "../owner.ts";
import type { Recovery, ScriptBackend, ScriptRequest } from "../shell/backend.ts";
import type { StreamEnd } from "../shell/stream.ts";
import { bounded, hasStatus, textOf, toSandboxError } from "./failure.ts";
import { type ClientFetch, type CommandTap, createClientFetch } from "./fetch.ts";
import { isSamePolicy, type SentPolicy, toNetworkPolicy } from "./policy.ts";
import { Account, reapAccount } from "./reap.ts";
import { readRecords, removeRecord, tokenMark, writeRecord } from "./records.ts";
import {
  checkVercelOptions,
  readCredentials,
  type VercelCredentials,
  type VercelOptions,
} from "./settings.ts";
import { VERCEL_TAGS } from "./tags.ts";

/** What the environment is called, and whether it outlives us. */
export interface VercelOwnership {
  readonly id: string;
  readonly keep: boolean;
  /** Folder for the record by which it is found when we are dead; none without it. */
  readonly stateDir?: string;
}

/** Prolongations in a session's time, so that one may fail. */
const PROLONGATIONS = 4;

const CAPABILITIES: ReadonlySet<Capability> = new Set<Capability>([
  "egress:none",
  "egress:allow-list",
  "reattach",
]);

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
  /** Null when the caller left it open. */
  #policy: SentPolicy | null;
  #credentials: VercelCredentials | null = null;
  #sandbox: Sandbox | null = null;
  /** Whether the sandbox is ours to delete. */
  #isMade = false;
  /** Whether one may have been made of which we were not told. */
  #mayBeMade = false;
  #workspace: string;
  /** The caller's own choice of a workspace. */
  readonly #asked: string | null;
  #prolonging: NodeJS.Timeout | undefined;
  readonly #sweeping = new AbortController();
  #sweep: Promise<unknown> = Promise.resolve();
  /** The change of the policy that runs. */
  #changing: Promise<unknown> = Promise.resolve();

  constructor(options: VercelOptions, ownership: VercelOwnership, workspace?: string) {
    checkVercelOptions(options);
    this.#options = options;
    this.#policy = options.egress === undefined ? null : toNetworkPolicy(options.egress);
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
      await this.#record();
      await this.#take((await this.#find()) ?? (await this.#create()));
    } catch (error) {
      await this.#undo();
      throw toSandboxError(error, `Cannot start sandbox "${this.#sandboxName}"`);
    }
    // Only now, lest one that we take over is still its dead owner's.
    this.#sweep = this.#sweepOrphans();
  }

  async stop({ keep }: { readonly keep: boolean }): Promise<void> {
    clearInterval(this.#prolonging);
    this.#sweeping.abort();
    await this.#sweep;
    const sandbox = this.#sandbox;
    this.#sandbox = null;
    if (!sandbox || keep) return;
    // A sandbox that was there before goes on until its time is up.
    if (this.#isMade) await this.#delete(sandbox, "CLEANUP_FAILED", "Cannot delete", true);
    await this.#forget();
  }

  async runScript({ argv, env, files, onData, abortSignal }: ScriptRequest): Promise<StreamEnd> {
    const [cmd = "", ...args] = argv;
    const tap: CommandTap = { onData, abortSignal, mayHaveRun: false, failure: null };
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
      if (!this.#sandbox) {
        // Nothing is to be made or resumed for an answer: whether the project can be asked is what can be known.
        await bounded((signal) => Sandbox.list({ ...this.#params(), limit: 1, signal }));
        return { healthy: true };
      }
      const { status } = await bounded((signal) => this.#get(false, signal));
      if (status === "running") return { healthy: true };
      return { healthy: true, detail: `The sandbox is ${status}; it is resumed by the next command` };
    } catch (error) {
      // The server answers, so the next command makes another.
      if (this.#isMade && hasStatus(error, 404)) {
        return { healthy: true, detail: "The sandbox is gone; it is made anew by the next command" };
      }
      const { code, message, suggestion } = toSandboxError(error, "The sandbox cannot be used");
      return { healthy: false, code, reason: message, suggestion };
    }
  }

  async recover(error: MoorageError): Promise<Recovery | null> {
    if (error.code !== "ENVIRONMENT_LOST" || !this.#sandbox) return null;
    try {
      await this.#take(await this.#get(true));
      return {
        note: `The session of sandbox ${this.#sandboxName} had ended and was resumed; what ran in it is gone, and files are as they were last saved`,
      };
    } catch (failure) {
      if (!hasStatus(failure, 404, 410) || !this.#isMade)
        throw toSandboxError(failure, `Cannot resume sandbox "${this.#sandboxName}"`);
    }
    await this.#delete(this.#sandbox, "ENVIRONMENT_UNAVAILABLE", "Cannot replace");
    try {
      await this.#take(await this.#create());
    } catch (failure) {
      throw toSandboxError(failure, `Cannot make sandbox "${this.#sandboxName}" anew`);
    }
    return { note: `Sandbox ${this.#sandboxName} was gone and was made anew; its files are lost` };
  }

  /** Before a start it is what the sandbox will be made with. The API changes any policy to any other. */
  setEgress(egress: EgressPolicy): Promise<void> {
    // One after the other: the last to be asked for is the one that counts.
    const turn = this.#changing.then(() => this.#change(toNetworkPolicy(egress)));
    this.#changing = turn.catch(() => {}); // told to whoever asked
    return turn;
  }

  async #change(policy: SentPolicy): Promise<void> {
    if (this.#sandbox) {
      try {
        await this.#sandbox.update({ networkPolicy: policy });
        requirePolicy(await this.#get(false), policy);
      } catch (error) {
        throw toSandboxError(error, `Cannot change the egress policy of sandbox "${this.#sandboxName}"`);
      }
    }
    this.#policy = policy;
  }

  /** In the background, so that a start does not wait for others' remains. */
  async #sweepOrphans(): Promise<void> {
    const { stateDir } = this.#ownership;
    const { fetch: _, ...credentials } = this.#params();
    const account = new Account(this.#options.baseUrl ?? null, credentials, this.#sweeping.signal);
    try {
      const records = stateDir === undefined ? [] : await readRecords(stateDir);
      await reapAccount(account, records, { stateDir });
    } catch {
      // What cannot be removed now is removed by a later start or `moor reap`; it is no reason to fail this one.
    }
  }

  #params() {
    const credentials = this.#credentials ?? this.#options.credentials ?? readCredentials(process.env);
    return { ...credentials, fetch: this.#client.fetch };
  }

  #get(resume: boolean, signal?: AbortSignal): Promise<Sandbox> {
    return Sandbox.get({ ...this.#params(), name: this.#sandboxName, resume, ...(signal && { signal }) });
  }

  /**
   * One that is gone already is deleted.
   *
   * @param withSaved whether what its sessions saved goes too, unless another sandbox begins from it
   */
  async #delete(
    sandbox: Sandbox,
    code: "CLEANUP_FAILED" | "ENVIRONMENT_UNAVAILABLE",
    action: string,
    withSaved = false,
  ): Promise<void> {
    try {
      await bounded(
        (signal) => sandbox.delete({ signal, ...(withSaved && { deleteOrphanSnapshots: true }) }),
        { timeoutMs: limits.openTimeoutMs },
      );
    } catch (error) {
      if (hasStatus(error, 404)) return;
      throw new MoorageError(code, `${action} sandbox "${this.#sandboxName}": ${textOf(error)}`, {
        cause: error,
      });
    }
  }

  /** Null when there is none of that name. */
  async #find(): Promise<Sandbox | null> {
    if ((this.#options.name ?? null) === null && !this.#ownership.keep) return null;
    try {
      const sandbox = await this.#get(true);
      this.#isMade = sandbox.tags?.[VERCEL_TAGS.id] === this.#ownership.id;
      const owner = sandbox.tags?.[VERCEL_TAGS.owner];
      if (owner !== undefined && judgeOwner(owner, false) === "dead") {
        // Lest it be taken for an orphan while we use it.
        await sandbox.update({ tags: { ...sandbox.tags, [VERCEL_TAGS.owner]: ownerLabel() } });
      }
      if (this.#policy !== null) await sandbox.update({ networkPolicy: this.#policy });
      return sandbox;
    } catch (error) {
      if (hasStatus(error, 404)) return null;
      throw error;
    }
  }

  async #create(): Promise<Sandbox> {
    this.#mayBeMade = true;
    try {
      const sandbox = await this.#ask();
      this.#isMade = true;
      return sandbox;
    } catch (error) {
      // The client sends the request again when its answer is lost, and is then told that the name is taken: by us.
      const own = hasStatus(error, 409) ? await this.#findOwn() : null;
      if (own === null) throw error;
      this.#isMade = true;
      return own;
    }
  }

  /** The sandbox of our name when it is we who made it. */
  async #findOwn(): Promise<Sandbox | null> {
    try {
      const sandbox = await bounded((signal) => this.#get(false, signal));
      const { tags } = sandbox;
      return tags?.[VERCEL_TAGS.id] === this.#ownership.id && tags[VERCEL_TAGS.owner] === ownerLabel()
        ? sandbox
        : null;
    } catch (error) {
      if (hasStatus(error, 404)) return null;
      throw error;
    }
  }

  /** After a start that failed: a request whose answer was lost may have made a sandbox all the same. */
  async #undo(): Promise<void> {
    try {
      const left = this.#mayBeMade && !this.#sandbox ? await this.#findOwn() : null;
      if (left) await this.#delete(left, "CLEANUP_FAILED", "Cannot delete");
    } catch {
      // By its record it can be found when we are gone; what kept the start from succeeding is what is told.
      return;
    }
    await this.#forget();
  }

  #ask(): Promise<Sandbox> {
    const { runtime } = this.#options;
    const { id, keep } = this.#ownership;
    return Sandbox.create({
      ...this.#params(),
      name: this.#sandboxName,
      timeout: this.#sessionTimeoutMs,
      persistent: true,
      tags: { [VERCEL_TAGS.owner]: ownerLabel(), [VERCEL_TAGS.id]: id, [VERCEL_TAGS.keep]: String(keep) },
      ...(this.#policy !== null && { networkPolicy: this.#policy }),
      ...(runtime !== undefined && { runtime }),
    });
  }

  get #sessionTimeoutMs(): number {
    return this.#options.sessionTimeoutMs ?? limits.vercelTimeoutMs;
  }

  /** @throws {MoorageError} UNSUPPORTED when the server reports another network policy than was asked for */
  async #take(sandbox: Sandbox): Promise<void> {
    try {
      requirePolicy(sandbox, this.#policy);
    } catch (error) {
      // Nothing is to run where more may be reached than was allowed.
      if (this.#isMade) await this.#delete(sandbox, "CLEANUP_FAILED", "Cannot delete");
      throw error;
    }
    this.#sandbox = sandbox;
    this.#workspace = this.#asked ?? sandbox.currentSession().cwd;
    clearInterval(this.#prolonging);
    const everyMs = this.#sessionTimeoutMs / PROLONGATIONS;
    /** What has passed of the session's time and was not given back to it. */
    let passedMs = 0;
    this.#prolonging = setInterval(() => {
      passedMs += everyMs;
      const asked = passedMs;
      passedMs = 0;
      sandbox
        .currentSession()
        .extendTimeout(asked)
        .catch(() => {
          // Asked for again with the next; when the session has ended, the next command finds out, and says so.
          passedMs += asked;
        });
    }, everyMs);
    this.#prolonging.unref();
  }

  async #record(): Promise<void> {
    const { id, keep, stateDir } = this.#ownership;
    if (stateDir === undefined) return;
    const { token, teamId, projectId } = this.#params();
    await writeRecord(stateDir, {
      id,
      name: this.#sandboxName,
      baseUrl: this.#options.baseUrl ?? null,
      teamId,
      projectId,
      tokenMark: tokenMark(id, token),
      createdAt: new Date().toISOString(),
      keep,
    });
  }

  async #forget(): Promise<void> {
    const { id, stateDir } = this.#ownership;
    if (stateDir !== undefined) await removeRecord(stateDir, id);
  }

  #requireSandbox(): Sandbox {
    if (this.#sandbox) return this.#sandbox;
    throw new MoorageError("ENVIRONMENT_STOPPED", `Cannot run: sandbox ${this.#sandboxName} is not started`);
  }
}

const OVER: ReadonlySet<string> = new Set(["stopping", "snapshotting", "stopped", "failed", "aborted"]);

/**
 * What a server reports is all that can be known from outside about what it enforces.
 *
 * @throws {MoorageError} UNSUPPORTED
 */
function requirePolicy(sandbox: Sandbox, policy: SentPolicy | null): void {
  if (policy === null) return;
  // A session that has ended keeps the policy that it had.
  const session = OVER.has(sandbox.status) ? undefined : sandbox.currentSession().networkPolicy;
  const reports = [session, sandbox.networkPolicy];
  const reported = reports.filter((report) => report !== undefined);
  if (reported.length > 0 && reported.every((report) => isSamePolicy(policy, report))) return;
  const told = reported.find((report) => !isSamePolicy(policy, report));
  throw new MoorageError(
    "UNSUPPORTED",
    `Cannot restrict egress: the server reports ${told === undefined ? "no network policy" : `the network policy ${JSON.stringify(told)}`} where ${JSON.stringify(policy)} was asked for`,
  );
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
