/**
 * Brings an image. The engine answers 200 at once and reports the rest, failures too, as lines of JSON; the pull is
 * done when they end without one and the image is there.
 */
import type { Readable } from "node:stream";
import { MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import type { EnvironmentProgress } from "../base.ts";
import type { DockerClient } from "./client.ts";

export interface PullOptions {
  readonly platform: string | null;
  readonly onProgress: (progress: EnvironmentProgress) => void;
  readonly abortSignal?: AbortSignal;
}

/** @throws {MoorageError} IMAGE_PULL_FAILED, IMAGE_MISSING when the registry has no such image, DOCKER_* */
export async function pullImage(client: DockerClient, image: string, options: PullOptions): Promise<void> {
  const { platform, onProgress, abortSignal } = options;
  const action = `pull "${image}"`;
  onProgress({ message: `Pulling ${image}`, fraction: 0 });
  const stream = await client.call(
    action,
    (docker, signal) =>
      docker.createImage({ ...reference(image), ...(platform && { platform }), abortSignal: signal }),
    // A registry may take its time until the first line.
    { timeoutMs: limits.dockerPullStallMs, fallback: "IMAGE_PULL_FAILED", image, abortSignal },
  );
  // The engine's answer is an IncomingMessage, which the library types as the bare interface.
  await follow(stream as Readable, image, options);
  await client.call(action, (docker) => docker.getImage(image).inspect(), {
    fallback: "IMAGE_PULL_FAILED",
    image,
    abortSignal,
  });
  onProgress({ message: `Pulled ${image}`, fraction: 1 });
}

/** Without a tag the engine would bring every one of them. */
function reference(image: string): { fromImage: string; tag?: string } {
  if (image.includes("@")) return { fromImage: image };
  const colon = image.lastIndexOf(":");
  if (colon > image.lastIndexOf("/"))
    return { fromImage: image.slice(0, colon), tag: image.slice(colon + 1) };
  return { fromImage: image, tag: "latest" };
}

interface PullLine {
  readonly id?: string;
  readonly status?: string;
  readonly error?: string;
  readonly errorDetail?: { readonly message?: string };
  readonly progressDetail?: { readonly current?: number; readonly total?: number };
}

async function follow(stream: Readable, image: string, options: PullOptions): Promise<void> {
  const layers = new LayerProgress();
  const fail = (text: string, cause?: unknown) => pullError(image, text, cause);
  let rest = "";
  let ended = false;
  let stalled: NodeJS.Timeout | undefined;
  const watchStall = () => {
    clearTimeout(stalled);
    stalled = setTimeout(() => {
      stream.destroy(fail(`nothing arrived for ${limits.dockerPullStallMs / 1000} s`));
    }, limits.dockerPullStallMs);
  };
  const onAbort = () => {
    stream.destroy(new MoorageError("ABORTED", `Cannot pull "${image}": the caller cancelled`));
  };
  options.abortSignal?.addEventListener("abort", onAbort, { once: true });
  stream.on("end", () => {
    ended = true;
  });
  const read = (line: string) => {
    if (!line.trim()) return;
    const parsed = parse(line);
    const failure = parsed?.errorDetail?.message ?? parsed?.error;
    if (failure !== undefined) throw fail(failure);
    if (parsed && layers.take(parsed)) {
      options.onProgress({ message: `Pulling ${image}`, fraction: layers.fraction });
    }
  };
  try {
    watchStall();
    const decoder = new TextDecoder();
    for await (const chunk of stream) {
      watchStall();
      const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) read(line);
    }
    read(rest);
    if (!ended) throw fail("the connection to the engine broke");
  } catch (error) {
    throw error instanceof MoorageError ? error : fail(String(error), error);
  } finally {
    clearTimeout(stalled);
    options.abortSignal?.removeEventListener("abort", onAbort);
    stream.destroy();
  }
}

function parse(line: string): PullLine | null {
  try {
    const value: unknown = JSON.parse(line);
    // Every field is optional and only compared or shown.
    return typeof value === "object" && value !== null ? (value as PullLine) : null;
  } catch {
    // A line that is no JSON reports nothing; failures are judged by the image being there at the end.
    return null;
  }
}

function pullError(image: string, text: string, cause?: unknown): MoorageError {
  const missing = /manifest unknown|not found|does not exist|pull access denied|no such image/i.test(text);
  const offline = /dial tcp|lookup |i\/o timeout|connection refused|TLS handshake/i.test(text);
  const code = missing && !offline ? "IMAGE_MISSING" : "IMAGE_PULL_FAILED";
  return new MoorageError(code, `Cannot pull "${image}": ${text}`, { details: { image }, cause });
}

/** Fraction over all layers known so far: fetching is the first half of each, unpacking the second. Never goes back. */
class LayerProgress {
  readonly #layers = new Map<string, number>();
  #fraction = 0;

  get fraction(): number {
    return this.#fraction;
  }

  /** @returns whether the fraction grew enough to be worth telling */
  take(line: PullLine): boolean {
    const share = layerShare(line);
    if (!line.id || share === null) return false;
    this.#layers.set(line.id, Math.max(share, this.#layers.get(line.id) ?? 0));
    const sum = [...this.#layers.values()].reduce((total, layer) => total + layer, 0);
    const next = Math.min(0.99, sum / this.#layers.size);
    if (next < this.#fraction + 0.01) return false;
    this.#fraction = next;
    return true;
  }
}

function layerShare(line: PullLine): number | null {
  const { current = 0, total = 0 } = line.progressDetail ?? {};
  const part = total > 0 ? Math.min(1, current / total) / 2 : 0;
  switch (line.status) {
    case "Pulling fs layer":
    case "Waiting":
      return 0;
    case "Downloading":
      return part;
    case "Verifying Checksum":
    case "Download complete":
      return 0.5;
    case "Extracting":
      return 0.5 + part;
    case "Pull complete":
    case "Already exists":
      return 1;
    default:
      return null;
  }
}
