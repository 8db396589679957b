/** The workers of one environment: opened on demand, handed out one call at a time, closed when there are too many. */
import { randomBytes } from "node:crypto";
import { MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import type { CallWorker } from "./worker.ts";

export interface PoolOptions {
  /** Prefix of a worker's id, by which all processes of the environment are found; read for each worker anew. */
  readonly prefix: () => string;
  /** Makes one. @param login whether it reads the login environment, which the first one does */
  readonly open: (id: string, login: boolean) => Promise<CallWorker>;
  /** Whether the first worker reads the login environment. */
  readonly login: boolean;
  /** Idle workers kept. */
  readonly maxIdle: number;
}

/** A shell has ended its last call and forked its next subshell by then, milliseconds. */
const PREPARED_MS = 2;

interface Waiter {
  readonly resolve: (worker: CallWorker) => void;
  readonly reject: (error: unknown) => void;
  /** Whether a worker is being opened on its behalf, though another one may be given to it. */
  opening: boolean;
}

export class WorkerPool {
  readonly #options: PoolOptions;
  /** The oldest last. */
  readonly #idle: CallWorker[] = [];
  /** Numbers of the workers, in the order in which they came. */
  readonly #ages = new WeakMap<CallWorker, number>();
  #opened = 0;
  readonly #busy = new Set<CallWorker>();
  /** Hold a stream that a left-behind process may still write to. */
  readonly #retired = new Set<CallWorker>();
  readonly #waiters: Waiter[] = [];
  #opening = 0;
  #loginTaken = false;
  /** Whether a second worker was asked for, for those who come before the first is prepared. */
  #hasSecond = false;
  #closed = false;

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  get retired(): number {
    return this.#retired.size;
  }

  /**
   * An idle worker, a new one or one that is given back, whichever comes first; where the backend makes a new one
   * wait for a stream, the old ones go round. Of those that are idle it is the oldest, so that calls that follow each
   * other find the same shell.
   *
   * @param anyShell whether the call cannot tell one shell from another: when it comes so soon that the oldest is not
   * prepared, it gets one that is. @default false
   * @throws {MoorageError} what the backend throws when no stream can be opened
   */
  async acquire({ anyShell = false }: { readonly anyShell?: boolean } = {}): Promise<CallWorker> {
    if (this.#closed)
      throw new MoorageError("ENVIRONMENT_STOPPED", "Cannot run: the environment was stopped");
    const idle = (anyShell && this.#takePrepared()) || this.#takeIdle();
    if (idle) return idle;
    return new Promise((resolve, reject) => {
      const waiter = { resolve, reject, opening: false };
      this.#waiters.push(waiter);
      this.#openFor(waiter);
    });
  }

  /** Gives a worker back that is ready for the next call. */
  release(worker: CallWorker): void {
    this.#busy.delete(worker);
    if (this.#closed || !worker.alive) {
      void worker.close();
      this.#serveWaiter();
      return;
    }
    const waiter = this.#waiters.shift();
    if (waiter) {
      this.#busy.add(worker);
      waiter.resolve(worker);
    } else if (this.#idle.length >= this.#options.maxIdle) {
      void worker.close();
    } else {
      this.#keepIdle(worker);
      if (worker.prepare) setImmediate(() => this.#idle.includes(worker) && worker.prepare?.());
    }
  }

  /**
   * Sets a worker aside whose stream a left-behind process may hold: it is read and dropped until `gone` resolves,
   * so that the process neither blocks nor dies of a closed pipe, and never used again. A spare takes its place.
   */
  retire(worker: CallWorker, gone: Promise<void>): void {
    this.#busy.delete(worker);
    this.#retired.add(worker);
    void Promise.race([gone, worker.ended]).then(() => {
      this.#retired.delete(worker);
      return worker.close();
    });
    this.#refill();
  }

  /** Ends a worker that cannot be used any more. */
  async discard(worker: CallWorker): Promise<void> {
    this.#busy.delete(worker);
    await worker.close();
    this.#serveWaiter();
  }

  /** Forgets the idle workers, since the place behind them is a new one. */
  reset(): void {
    for (const worker of this.#idle.splice(0)) void worker.close();
    this.#loginTaken = false;
    this.#hasSecond = false;
  }

  async close(): Promise<void> {
    this.#closed = true;
    const stopped = new MoorageError("ENVIRONMENT_STOPPED", "Cannot run: the environment was stopped");
    for (const waiter of this.#waiters.splice(0)) waiter.reject(stopped);
    const all = [...this.#idle.splice(0), ...this.#busy, ...this.#retired];
    this.#busy.clear();
    this.#retired.clear();
    await Promise.all(all.map((worker) => worker.close()));
  }

  async #open(): Promise<CallWorker> {
    const login = this.#options.login && !this.#loginTaken;
    this.#loginTaken = true;
    this.#opening += 1;
    try {
      const id = `${this.#options.prefix()}.${randomBytes(6).toString("hex")}`;
      const worker = await this.#options.open(id, login);
      this.#ages.set(worker, this.#opened);
      this.#opened += 1;
      if (this.#closed) {
        await worker.close();
        throw new MoorageError("ENVIRONMENT_STOPPED", "Cannot run: the environment was stopped");
      }
      return worker;
    } catch (error) {
      if (login) this.#loginTaken = false;
      throw error;
    } finally {
      this.#opening -= 1;
    }
  }

  #keepIdle(worker: CallWorker): void {
    const age = (each: CallWorker): number => this.#ages.get(each) ?? 0;
    const at = this.#idle.findIndex((other) => age(other) < age(worker));
    this.#idle.splice(at < 0 ? this.#idle.length : at, 0, worker);
  }

  /**
   * The oldest that has long been prepared, or who has been for the longest. When a second one would have been better, it
   * is opened for the next time.
   */
  #takePrepared(): CallWorker | null {
    const alive = this.#idle.filter((worker) => worker.alive);
    const waited = ({ preparedForMs = Number.POSITIVE_INFINITY }: CallWorker): number => preparedForMs;
    const best =
      alive.findLast((worker) => waited(worker) >= PREPARED_MS) ??
      alive.reduce<CallWorker | null>(
        (one, other) => (one && waited(one) > waited(other) ? one : other),
        null,
      );
    if (!best) return null;
    if (waited(best) < PREPARED_MS && this.#idle.length === 1 && !this.#hasSecond) {
      this.#hasSecond = true;
      this.#openSpare();
    }
    this.#idle.splice(this.#idle.indexOf(best), 1);
    this.#busy.add(best);
    return best;
  }

  /** One that lives, and is busy from here on. */
  #takeIdle(): CallWorker | null {
    for (;;) {
      const idle = this.#idle.pop();
      if (!idle) return null;
      if (idle.alive) {
        this.#busy.add(idle);
        return idle;
      }
      void idle.close();
    }
  }

  /** Opens a worker, for whoever waits the longest by then; when it cannot be had, `waiter` is told. */
  #openFor(waiter: Waiter): void {
    if (this.#busy.size + this.#opening >= limits.maxShells) return;
    waiter.opening = true;
    void this.#open().then(
      (worker) => {
        waiter.opening = false;
        this.release(worker);
      },
      (error: unknown) => {
        waiter.opening = false;
        const at = this.#waiters.indexOf(waiter);
        if (at >= 0) this.#waiters.splice(at, 1)[0]?.reject(error);
        // Who was served otherwise may have taken the worker of somebody who waits still, and for who came when there
        // was no room none is being opened.
        this.#serveWaiter();
      },
    );
  }

  #refill(): void {
    if (this.#closed || this.#idle.length + this.#opening >= limits.spareShells) return;
    this.#openSpare();
  }

  #openSpare(): void {
    void this.#open().then(
      (worker) => this.release(worker),
      // The next call opens its own and tells what is wrong.
      () => this.#serveWaiter(),
    );
  }

  /**
   * Serves who waits the longest, or opens a worker. Those who wait keep their place, and nobody has two opened, so
   * that every wait ends where none can be had.
   */
  #serveWaiter(): void {
    if (this.#closed || this.#waiters.length === 0) return;
    const idle = this.#takeIdle();
    if (idle) {
      this.#waiters.shift()?.resolve(idle);
      return;
    }
    const waiter = this.#waiters.find(({ opening }) => !opening);
    if (waiter) this.#openFor(waiter);
  }
}
