/**
 * This machine, seen from inside a bubblewrap sandbox: the root read-only, the workspace writable but for the parts
 * that programs outside act upon, everything else private, and the network that the policy names.
 *
 * All shells of one environment are in one sandbox, which ends with its orchestrator: nothing can be kept. Where a
 * sandbox cannot be made, that is an error; commands never run outside of one.
 */
import { randomBytes } from "node:crypto";
import { accessSync, constants, existsSync, mkdirSync, realpathSync, statSync } from "node:fs";
import { rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { MoorageError } from "../../../src/errors.ts";
import { makePrivateFolder } from "../../../src/folders.ts";
import type {
  BaseEnvironment,
  Capability,
  EgressCredential,
  EgressPolicy,
  EgressReport,
  Health,
} from "../../base.ts";
import { doorVariables } from "../../egress/door.ts";
import { EgressGate, reportOf, requireChangeable } from "../../egress/gate.ts";
import { compilePolicy } from "../../egress/policy.ts";
import type { Recovery, ShellBackend } from "../../shell/backend.ts";
import { createShellEnvironment, type ShellEnvironmentOptions } from "../../shell/environment.ts";
import type { ShellKind } from "../../shell/phrases.ts";
import { STARTUP_VARIABLES } from "../../shell/script.ts";
import type { ShellStream, StreamRequest } from "../../shell/stream.ts";
import type { KnownShells } from "../../shell/worker.ts";
import { currentFolder } from "../index.ts";
import { removeRecord, writeRecord } from "../owners.ts";
import { reapLocal } from "../reap.ts";
import { scrubbedVariables } from "../variables.ts";
import { claimedPlaceholders, knownPlaceholders, releasePlaceholders } from "./claims.ts";
import { guard } from "./guard.ts";
import { SANDBOX_MARK } from "./launch.ts";
import { checkWorkspace, isInside, layoutArgv, sandboxHome, seesBash } from "./layout.ts";
import { probeBubblewrap } from "./probe.ts";
import { CLOSED_WHOLE, type Protection, protect } from "./protected.ts";
import { type Owner, SANDBOX_INIT, Sandbox, unavailable } from "./sandbox.ts";

export interface BubblewrapOptions extends ShellEnvironmentOptions {
  /** @default "open" */
  readonly egress?: EgressPolicy;
  /** Put into requests by the proxy of an allow-list. */
  readonly credentials?: readonly EgressCredential[];
}

const CAPABILITIES: ReadonlySet<Capability> = new Set<Capability>([
  "pty",
  "ports",
  "egress:none",
  "egress:allow-list",
]);

/** No workspace can be in it, and a sandbox has its own. */
const MEMORY_FOLDER = "/dev/shm";

/** Others hold functions of bash, which only some shells would pass on. */
const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
/** Options for shells of the host, and ways to its services, which are closed inside: the names would only mislead. */
const CLOSED =
  /^(?:SHELLOPTS|BASHOPTS|SSH_AUTH_SOCK|SSH_AGENT_PID|GPG_AGENT_INFO|DBUS_.*|DOCKER_.*|CONTAINER_HOST|KUBECONFIG|DISPLAY|XAUTHORITY|WAYLAND_DISPLAY|XDG_.*|TMPDIR|TMP|TEMP|PULSE_SERVER|.*_PROXY)$/i;

/** How often a sandbox is begun whose mounts did not come about. */
const ATTEMPTS = 3;

class BubblewrapBackend implements ShellBackend {
  readonly name = "local";
  readonly isolation = "process";
  readonly capabilities = CAPABILITIES;
  readonly description = "bubblewrap sandbox on this machine";
  /** Everything inside is in one namespace of processes, which ends whole. */
  readonly disposable = true;
  readonly workspace: string;
  readonly exposedHostPaths: readonly string[];
  readonly #options: BubblewrapOptions;
  readonly #id: () => string;
  /** The policy it was made with, or was given since. */
  #egress: EgressPolicy;
  #gate: EgressGate | null = null;
  #sandbox: Sandbox | null = null;
  #placeholders: readonly string[] = [];
  #protected: readonly string[] = [];
  #endGuard: () => void = () => {};
  /** Shell whose variables are wanted beside the first one. */
  #login: ShellKind | "auto" | null = null;
  #attempts = 0;
  #again: Promise<void> | null = null;
  #stops = 0;

  constructor(options: BubblewrapOptions, id: () => string) {
    if (options.keep) {
      throw new MoorageError(
        "UNSUPPORTED",
        "Cannot keep a bubblewrap sandbox: it ends with its orchestrator",
      );
    }
    this.#egress = options.egress ?? "open";
    compilePolicy(this.#egress);
    this.workspace = checkWorkspace(resolve(options.workspace ?? currentFolder()));
    this.exposedHostPaths = [this.workspace];
    this.#options = options;
    this.#id = id;
  }

  get sharedFolder(): string {
    return this.workspace;
  }

  get knownShells(): KnownShells {
    return { bash: seesBash(), reaper: SANDBOX_INIT, unwanted: this.#sandbox?.inherited ?? [] };
  }

  async start(): Promise<void> {
    await reapLocal({ stateDir: this.#options.stateDir });
    this.#login = this.#options.shell ?? "auto";
    await this.#renew();
  }

  placeholders(): Promise<readonly string[]> {
    return knownPlaceholders(this.#options.stateDir);
  }

  protectedPaths(): readonly string[] {
    return this.#protected;
  }

  async stop(): Promise<void> {
    const problems: unknown[] = [];
    const { stateDir } = this.#options;
    this.#stops += 1;
    this.#endGuard();
    for (const step of [() => this.#sandbox?.stop(), () => this.#gate?.close(), () => this.#release()]) {
      try {
        await step();
      } catch (error) {
        problems.push(error);
      }
    }
    this.#sandbox = null;
    this.#gate = null;
    this.#placeholders = [];
    if (problems.length > 0) throw problems[0];
    await removeRecord(stateDir, this.#id());
  }

  async #release(): Promise<void> {
    const own = { id: this.#id(), placeholders: [...this.#placeholders] };
    const left = await releasePlaceholders(this.#options.stateDir, own);
    if (left.length > 0) throw new MoorageError("CLEANUP_FAILED", `Cannot remove ${left.join(", ")}`);
  }

  async openStream(request: StreamRequest): Promise<ShellStream> {
    if (!this.#sandbox)
      throw new MoorageError("ENVIRONMENT_STOPPED", "Cannot start a program: the sandbox is not started");
    const sandbox = this.#sandbox;
    try {
      return await sandbox.open(request.argv, request.env, request.greeting);
    } catch (error) {
      if (sandbox.isReady) throw error;
      const { failedInPassing } = sandbox;
      if (this.#sandbox === sandbox && !this.#again && this.#attempts < ATTEMPTS && failedInPassing) {
        this.#again = this.#beginAgain(sandbox).finally(() => {
          this.#again = null;
        });
      }
      // Whoever comes late to the failure finds the new one there.
      if (this.#again || (this.#sandbox && this.#sandbox !== sandbox)) {
        await this.#again;
        return this.openStream(request);
      }
      // One that could not be made leaves nothing to come back to.
      await this.#giveUp();
      throw error;
    }
  }

  /** Nothing has run in it. */
  async #beginAgain(failed: Sandbox): Promise<void> {
    const stops = this.#stops;
    const attempts = this.#attempts + 1;
    await failed.stop();
    await this.#renew();
    this.#attempts = attempts;
    if (this.#stops !== stops) await this.stop();
  }

  async #renew(): Promise<void> {
    this.#sandbox = await this.#begin();
    this.#attempts = 1;
  }

  readLogin(): Promise<string> {
    if (!this.#sandbox)
      throw new MoorageError("ENVIRONMENT_STOPPED", "Cannot read variables: the sandbox is not started");
    return this.#sandbox.readLogin();
  }

  async health(): Promise<Health> {
    const lost = this.#sandbox?.lost;
    if (lost) return { healthy: false, code: lost.code, reason: lost.message, suggestion: lost.suggestion };
    // A network's folder may not answer: only who asks for its health waits for it.
    await stat(this.workspace).catch(() => {});
    const problem = folderProblem(this.workspace);
    if (problem) {
      const { code, message, suggestion } = problem;
      return { healthy: false, code, reason: message, suggestion };
    }
    return this.#sandbox ? { healthy: true } : await probeBubblewrap([this.workspace]);
  }

  async recover(): Promise<Recovery | null> {
    const old = this.#sandbox;
    if (old && !old.lost) return null;
    await old?.stop();
    // The proxy lives on: what it counted and what it was told since is kept.
    this.#login = null;
    await this.#renew();
    return {
      note: `${old?.lost?.message ?? "The sandbox is gone"}; a new one was made, its processes, variables and private files are lost`,
    };
  }

  egressReport(): EgressReport | null {
    return reportOf(this.#egress, this.#gate);
  }

  setEgress(policy: EgressPolicy): void {
    requireChangeable(this.#options.egress ?? "open", policy);
    this.#gate?.setPolicy(policy);
    this.#egress = policy;
  }

  refusalsSince(startedAt: number): readonly string[] {
    return this.#gate?.refusalsSince(startedAt) ?? [];
  }

  async #begin(): Promise<Sandbox> {
    const { stateDir, egress = "open", credentials = [] } = this.#options;
    const problem = folderProblem(this.workspace) ?? recordsProblem(this.workspace, stateDir);
    if (problem) throw problem;
    if (process.platform !== "linux") throw unavailable(`it needs Linux, and this is ${process.platform}`);
    const record = { stateDir, id: this.#id() };
    const gate =
      typeof egress === "string"
        ? null
        : (this.#gate ?? (await EgressGate.open({ policy: this.#egress, credentials, record })));
    this.#gate = gate;
    const channel = join(await this.#channelsFolder(), `moorage-sandbox-${randomBytes(6).toString("hex")}`);
    try {
      const owner = foreignOwner(this.workspace);
      const mark = `${this.#id()}${SANDBOX_MARK}`;
      let replaced: string | null = null;
      let made: Sandbox | null = null;
      const layout = async (actual: string) => {
        const protection = await this.#protect({ channel, mark: actual });
        mkdirSync(channel, { mode: 0o700 });
        protection.make();
        const argv = layoutArgv({
          workspace: this.workspace,
          channel,
          foreign: owner !== null,
          hidden: [stateDir],
          openNetwork: egress === "open",
          readonly: protection.readonly,
        });
        // From before they are mounted.
        this.#endGuard();
        this.#endGuard = guard(protection.held, (path) => {
          replaced = path;
          made?.abandon(path);
        });
        return [...argv, ...protection.argv];
      };
      // bwrap's outer layer is told by its command to end with this process: it can be cut in its middle from then on.
      if (gate) await this.#writeRecord({ folders: [channel], marks: [mark] });
      made = await Sandbox.start({
        layout,
        channel,
        workspace: this.workspace,
        env: () => this.#variables(gate !== null),
        mark,
        owner,
        network: gate ? { onDoor: (listener) => gate.adopt(listener) } : egress === "none" ? "none" : "open",
        bash: seesBash(),
        login: this.#login,
      });
      if (replaced !== null) made.abandon(replaced);
      return made;
    } catch (error) {
      await rm(channel, { recursive: true, force: true }).catch(() => {});
      await this.#giveUp();
      throw error;
    }
  }

  /** Of two failures the first is to be told; what cannot be removed stays on record. */
  async #giveUp(): Promise<void> {
    await this.stop().catch(() => {});
  }

  /** Finds what is to be protected, and notes it with the channel before any of it is there. */
  async #protect({ channel, mark }: { channel: string; mark: string }): Promise<Protection> {
    const claimed = await claimedPlaceholders(this.#options.stateDir, this.#id());
    const protection = isReadOnly(this.workspace) ? CLOSED_WHOLE : protect(this.workspace, claimed);
    this.#protected = protection.closed;
    const own = [...protection.placeholders, ...protection.held.filter((path) => claimed.has(path))];
    this.#placeholders = [...new Set([...this.#placeholders, ...own])];
    await this.#writeRecord({ folders: [channel], marks: [mark] });
    return protection;
  }

  #writeRecord(own: { folders: string[]; marks: string[] }): Promise<void> {
    const { stateDir, keep = false } = this.#options;
    return writeRecord(stateDir, {
      id: this.#id(),
      workspace: this.workspace,
      createdAt: new Date().toISOString(),
      keep,
      ...own,
      placeholders: [...this.#placeholders],
    });
  }

  /** Folder for channels. In memory where that can be: dozens of files and pipes come and go with a sandbox. */
  async #channelsFolder(): Promise<string> {
    const { stateDir } = this.#options;
    try {
      accessSync(MEMORY_FOLDER, constants.W_OK | constants.X_OK);
      return MEMORY_FOLDER;
    } catch {
      // There is none, or it is closed to this user.
    }
    // Where commands could write, they could put links in the place of its parts.
    const exposed = existsSync(tmpdir()) && isInside(`${realpathSync(tmpdir())}/`, this.workspace);
    if (exposed) await makePrivateFolder(stateDir);
    return exposed ? stateDir : tmpdir();
  }

  #variables(door: boolean): Record<string, string> {
    const host = Object.entries(scrubbedVariables(process.env)).filter(
      ([name]) => NAME.test(name) && !CLOSED.test(name) && !STARTUP_VARIABLES.includes(name),
    );
    return { ...Object.fromEntries(host), HOME: sandboxHome(), ...(door && doorVariables()) };
  }
}

/**
 * Owner of a workspace that is not root's, when we are root. Without capabilities root could not write there, and what
 * commands make belongs to whom the folder does.
 */
function foreignOwner(path: string): Owner | null {
  if (process.getuid?.() !== 0) return null;
  const { uid, gid } = statSync(path);
  return uid === 0 ? null : { uid, gid };
}

/** What this process and later ones believe of environments, and remove for them, must be nothing that commands wrote. */
function recordsProblem(workspace: string, stateDir: string): MoorageError | null {
  const state = existsSync(stateDir) ? realpathSync(stateDir) : resolve(stateDir);
  if (workspace !== state && !isInside(workspace, state)) return null;
  return new MoorageError(
    "PATH_DENIED",
    `Cannot work in "${workspace}": Moorage keeps its records in "${state}"`,
    {
      suggestion: "Choose a project's own folder, or another state folder.",
    },
  );
}

/** Whether nobody can write to its file system, so that nothing holds a place there. */
function isReadOnly(path: string): boolean {
  try {
    accessSync(path, constants.W_OK);
    return false;
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "EROFS";
  }
}

/** @param path with every link resolved, as it was when the environment was made */
function folderProblem(path: string): MoorageError | null {
  try {
    // Somebody who may write above it could have put a link to another folder in its place.
    if (realpathSync.native(path) !== path)
      return new MoorageError("WORKDIR_MISSING", `Cannot work in "${path}": it has become a link`);
    if (statSync(path).isDirectory()) return null;
    return new MoorageError("WORKDIR_MISSING", `Cannot work in "${path}": it is no folder`);
  } catch (error) {
    return new MoorageError("WORKDIR_MISSING", `Cannot work in "${path}": there is no such folder`, {
      cause: error,
    });
  }
}

/**
 * An environment in a sandbox on this machine.
 *
 * @param options.workspace @default the current folder; not the home folder or what is above it
 * @throws {MoorageError} PATH_DENIED, INVALID_SPEC (policy), UNSUPPORTED (keep)
 */
export function createBubblewrapEnvironment(options: BubblewrapOptions): BaseEnvironment {
  let id = options.id ?? "";
  const backend = new BubblewrapBackend(options, () => id);
  const environment = createShellEnvironment(backend, { ...options, workspace: backend.workspace });
  id = environment.id;
  return environment;
}
