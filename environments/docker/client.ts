/**
 * The way to one engine: dockerode, loaded on first use, with every request bounded in time and every failure told
 * by what it means to the caller.
 */
import { Agent as HttpAgent } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import { inspect } from "node:util";
import type Dockerode from "dockerode";
import { type ErrorCode, isMoorageError, MoorageError, type MoorageErrorOptions } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import { type DockerEndpoint, resolveEndpoint } from "./endpoint.ts";

export interface CallOptions {
  /** @default limits.dockerRequestTimeoutMs */
  readonly timeoutMs?: number;
  readonly abortSignal?: AbortSignal | undefined;
  /** Code for a failure that no rule knows. @default "ENVIRONMENT_UNAVAILABLE" */
  readonly fallback?: ErrorCode;
  /** Named in messages about a missing image. */
  readonly image?: string;
  /** Named in messages about a missing container. */
  readonly container?: string;
}

/** One engine. Cheap to make: nothing is read, loaded or connected before the first call. */
export class DockerClient {
  readonly #resolve: () => DockerEndpoint;
  #endpoint: DockerEndpoint | undefined;
  #docker: Promise<Dockerode> | undefined;

  constructor(resolve: () => DockerEndpoint = () => resolveEndpoint()) {
    this.#resolve = resolve;
  }

  /** @throws {MoorageError} DOCKER_CONTEXT_INVALID, UNSUPPORTED */
  get endpoint(): DockerEndpoint {
    this.#endpoint ??= this.#resolve();
    return this.#endpoint;
  }

  /**
   * Makes one request. The signal that `request` gets ends it, and is not fired once it has been answered, so
   * that a stream from it lives on.
   *
   * @param action completes "Cannot …" in messages
   * @throws {MoorageError} DOCKER_UNREACHABLE, DOCKER_PERMISSION, IMAGE_MISSING, CONTAINER_MISSING,
   *   CONTAINER_PAUSED, INVALID_SPEC, ABORTED, or the fallback with the engine's words
   */
  async call<Result>(
    action: string,
    request: (docker: Dockerode, abortSignal: AbortSignal) => Promise<Result>,
    options: CallOptions = {},
  ): Promise<Result> {
    const timeoutMs = options.timeoutMs ?? limits.dockerRequestTimeoutMs;
    const { endpoint } = this;
    const docker = await this.#load(endpoint, action);
    if (options.abortSignal?.aborted) throw aborted(action);
    const controller = new AbortController();
    let timer: NodeJS.Timeout | undefined;
    let onAbort = () => {};
    const givenUp = new Promise<never>((_, reject) => {
      const giveUp = (error: MoorageError) => {
        reject(error);
        controller.abort();
      };
      timer = setTimeout(() => {
        const text = `no answer within ${timeoutMs / 1000} s from the Docker engine at ${named(endpoint)}`;
        giveUp(new MoorageError("DOCKER_UNREACHABLE", `Cannot ${action}: ${text}`, about(endpoint)));
      }, timeoutMs);
      onAbort = () => giveUp(aborted(action));
      options.abortSignal?.addEventListener("abort", onAbort, { once: true });
    });
    const answer = request(docker, controller.signal);
    // When the race is decided by the deadline, the request's own late failure has nobody to tell.
    answer.catch(() => {});
    try {
      return await Promise.race([answer, givenUp]);
    } catch (error) {
      throw engineError(error, action, endpoint, options);
    } finally {
      clearTimeout(timer);
      options.abortSignal?.removeEventListener("abort", onAbort);
    }
  }

  /**
   * The engine's own client, for what is no work in a container: images.
   * @throws {MoorageError} DOCKER_CONTEXT_INVALID
   */
  dockerode(action: string): Promise<Dockerode> {
    return this.#load(this.endpoint, action);
  }

  async #load(endpoint: DockerEndpoint, action: string): Promise<Dockerode> {
    try {
      this.#docker ??= import("dockerode").then(({ default: Docker }) => new Docker(modemOptions(endpoint)));
      return await this.#docker;
    } catch (error) {
      // The library reads DOCKER_HOST and its certificates for itself, even when it is told otherwise.
      throw engineError(error, action, endpoint, { fallback: "DOCKER_CONTEXT_INVALID" });
    }
  }
}

/**
 * Every field is given, also the empty ones: what is left out, the library takes from DOCKER_HOST by rules of its own.
 * A connection per request: an idle one may be dropped on the way without notice.
 */
function modemOptions(endpoint: DockerEndpoint): Dockerode.DockerOptions {
  const { tls } = endpoint;
  const material = {
    ...(tls?.ca && { ca: tls.ca }),
    ...(tls?.cert && { cert: tls.cert }),
    ...(tls?.key && { key: tls.key }),
  };
  const agent = tls
    ? new HttpsAgent({ keepAlive: false, rejectUnauthorized: tls.verify, ...material })
    : new HttpAgent({ keepAlive: false });
  // The library prints the options of each request, with all that they lead to, for a log that nobody reads: every open
  // connection and whoever listens to it, which takes seconds where there are dozens.
  Object.assign(agent, { [inspect.custom]: () => "Agent" });
  const options = {
    socketPath: endpoint.socketPath ?? undefined,
    host: endpoint.host?.includes(":") ? `[${endpoint.host}]` : (endpoint.host ?? undefined),
    port: endpoint.port ?? undefined,
    protocol: tls ? "https" : "http",
    pathPrefix: "/",
    username: undefined,
    ca: tls?.ca ?? undefined,
    cert: tls?.cert ?? undefined,
    key: tls?.key ?? undefined,
    timeout: undefined,
    version: endpoint.apiVersion ? `v${endpoint.apiVersion}` : undefined,
    agent,
  };
  // The library's types know neither `agent` nor buffers nor undefined, all of which it takes.
  return options as unknown as Dockerode.DockerOptions;
}

const UNREACHABLE = new Set([
  "ENOENT",
  "ENOTDIR",
  "ENOTSOCK",
  "ECONNREFUSED",
  "ECONNRESET",
  "EPIPE",
  "ETIMEDOUT",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "EHOSTDOWN",
  "ENOTFOUND",
  "EAI_AGAIN",
]);

/** Tells a failed request by what it means. Moorage's own errors pass through. */
export function engineError(
  error: unknown,
  action: string,
  endpoint: DockerEndpoint,
  options: Pick<CallOptions, "fallback" | "image" | "container"> = {},
): MoorageError {
  if (isMoorageError(error)) return error;
  const { status, code, text } = facts(error);
  const make = (as: ErrorCode, message: string, more: MoorageErrorOptions = {}) =>
    new MoorageError(as, `Cannot ${action}: ${message}`, {
      ...more,
      details: {
        ...about(endpoint).details,
        ...(status && { statusCode: status }),
        ...(options.container && { container: options.container }),
        ...(options.image && { image: options.image }),
      },
      cause: error,
    });

  if (code === "EACCES" || code === "EPERM") {
    return make(
      "DOCKER_PERMISSION",
      `this user may not use the Docker engine's socket at ${named(endpoint)}`,
    );
  }
  if (status === undefined && (UNREACHABLE.has(code) || /TLS|SSL|CERT|certificate/.test(code + text))) {
    return make("DOCKER_UNREACHABLE", `no Docker engine can be reached at ${named(endpoint)} (${text})`);
  }
  if (status === 404 && /no such image|manifest unknown|pull access denied/i.test(text)) {
    return make("IMAGE_MISSING", `there is no image "${options.image ?? "?"}" (${text})`);
  }
  if (/is paused/i.test(text) && (status === 409 || status === 500)) {
    return make("CONTAINER_PAUSED", `container "${options.container ?? "?"}" is paused`);
  }
  if (status === 404 && /no such container/i.test(text)) {
    return make("CONTAINER_MISSING", `there is no container "${options.container ?? "?"}"`);
  }
  if (/is not running|is restarting|is marked for removal/i.test(text)) {
    return make("CONTAINER_MISSING", `container "${options.container ?? "?"}" is not running`);
  }
  if (status === 400 && /invalid reference format|invalid (image|container) name/i.test(text)) {
    return make("INVALID_SPEC", text);
  }
  return make(options.fallback ?? "ENVIRONMENT_UNAVAILABLE", text);
}

function facts(error: unknown): { status: number | undefined; code: string; text: string } {
  if (!(error instanceof Error)) return { status: undefined, code: "", text: String(error) };
  const status = "statusCode" in error && typeof error.statusCode === "number" ? error.statusCode : undefined;
  const code = "code" in error ? String(error.code) : error.message === "socket hang up" ? "ECONNRESET" : "";
  // The library parses JSON answers and hands others over as bytes.
  const body: unknown = "json" in error ? error.json : undefined;
  const said =
    typeof body === "object" && body !== null && "message" in body && typeof body.message === "string"
      ? body.message
      : Buffer.isBuffer(body) && body.length > 0
        ? body.toString("utf8").slice(0, 2000)
        : error.message.replace(/^\(HTTP code \d+\) [^-]* - /, "");
  return { status, code, text: said.trim() || `status ${status}` };
}

/** The address and what chose it, for messages. */
export function named(endpoint: DockerEndpoint): string {
  return `${endpoint.url} (from ${endpoint.source})`;
}

function about(endpoint: DockerEndpoint) {
  return { details: { endpoint: endpoint.url, source: endpoint.source } };
}

function aborted(action: string): MoorageError {
  return new MoorageError("ABORTED", `Cannot ${action}: the caller cancelled`);
}
