/** Requests and answers, as bytes on the wire. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { ZodType } from "zod";
import { limits } from "../limits.ts";
import { ApiError, badRequest } from "./api-error.ts";

/** @throws {ApiError} 413 beyond `maxBytes` */
export async function readBody(request: IncomingMessage, maxBytes: number): Promise<Buffer> {
  const tooLarge = () => new ApiError(413, "too_large", `The request has more than ${maxBytes} bytes`);
  // What says so itself is not waited for.
  if (Number(request.headers["content-length"] ?? 0) > maxBytes) throw tooLarge();
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw tooLarge();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** An empty body is an empty object. @throws {ApiError} 400, 413 */
export async function readJson<Output>(request: IncomingMessage, shape: ZodType<Output>): Promise<Output> {
  const text = (await readBody(request, limits.serveBodyMaxBytes)).toString("utf8");
  let value: unknown;
  try {
    value = text === "" ? {} : JSON.parse(text);
  } catch (error) {
    throw new ApiError(400, "bad_request", "The body is no JSON", error);
  }
  const parsed = shape.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw badRequest(`The body is wrong at "${issue?.path.join(".") ?? ""}": ${issue?.message ?? "unknown"}`);
}

export function sendJson(response: ServerResponse, status: number, value: unknown): void {
  if (response.headersSent || response.destroyed) return void response.destroy();
  const body = Buffer.from(JSON.stringify(value));
  response.writeHead(status, { "content-type": "application/json", "content-length": body.length });
  response.end(body);
}

/** Begins lines of JSON. Clients compare the content type as a whole, so it names no charset. */
export function startLines(response: ServerResponse): void {
  response.writeHead(200, { "content-type": "application/x-ndjson", "cache-control": "no-store" });
}

/** Writes; waits while the reader is behind. @returns whether there still is a reader */
export async function write(response: ServerResponse, data: string | Buffer): Promise<boolean> {
  if (response.destroyed) return false;
  if (response.write(data)) return true;
  await new Promise<void>((resolve) => {
    const done = (): void => {
      response.off("drain", done).off("close", done);
      resolve();
    };
    response.on("drain", done).on("close", done);
  });
  return !response.destroyed;
}

/** Fires when the client is gone before the answer was. */
export function whenGone(response: ServerResponse): AbortSignal {
  const gone = new AbortController();
  response.once("close", () => gone.abort());
  return gone.signal;
}
