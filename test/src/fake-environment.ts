import { BaseEnvironment, type ExecResult, type Health, type ShellSession } from "../../environments/base.ts";
import { MoorageError } from "../../src/errors.ts";

const none = (): never => {
  throw new Error("This environment has nothing but health and sessions");
};

/** A place without anything in it, for what only needs a name, health and sessions. */
export class EmptyEnvironment extends BaseEnvironment {
  readonly id: string;
  readonly backend = "empty";
  readonly workspace = "/empty";
  readonly isolation = "none";
  readonly capabilities = new Set<never>();
  readonly processes = { start: none, list: async () => [], get: none };
  readonly outputs = { read: none };
  readonly files = {
    readFile: none,
    readLines: none,
    writeFile: none,
    apply: none,
    stat: none,
    list: none,
    remove: none,
    rename: none,
    mkdir: none,
    realPath: none,
  };
  readonly tree = { scan: none, hash: none, pack: none, capture: none, writer: none, identity: none };
  state: Health | (() => Promise<Health>) = { healthy: true };
  opened = 0;
  closed = 0;
  stopped = 0;

  constructor(id = "empty") {
    super();
    this.id = id;
  }

  async start(): Promise<void> {}

  async stop(): Promise<void> {
    this.stopped += 1;
  }

  exec(..._call: Parameters<BaseEnvironment["exec"]>): Promise<ExecResult> {
    return none();
  }

  async openSession(): Promise<ShellSession> {
    this.opened += 1;
    const close = async () => {
      this.closed += 1;
    };
    return {
      id: `session-${this.opened}`,
      cwd: `/empty/${this.opened}`,
      exec: none,
      close,
      [Symbol.asyncDispose]: close,
    };
  }

  async health(): Promise<Health> {
    return typeof this.state === "function" ? this.state() : this.state;
  }

  info() {
    return {
      id: this.id,
      backend: this.backend,
      workspace: this.workspace,
      isolation: this.isolation,
      description: "nowhere",
      shell: null,
      exposedHostPaths: [],
    } as const;
  }
}

/** A place on a sound engine that cannot start until it is mended. */
export class FailingEnvironment extends EmptyEnvironment {
  static readonly reason = "There is no such image";
  starts = 0;
  mended = false;

  override async start(): Promise<void> {
    this.starts += 1;
    const { reason } = FailingEnvironment;
    this.state = this.mended
      ? { healthy: true }
      : { healthy: false, code: "IMAGE_MISSING", reason, neverStarted: true };
    if (!this.mended) throw new MoorageError("IMAGE_MISSING", reason);
  }
}
