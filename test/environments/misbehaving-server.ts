/** A proxy before a served API that answers the next fitting request wrongly, and counts what was asked. */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** Answers a request. `forward` passes it on, so that it is done, and gives the true answer. */
export type Fault = (response: ServerResponse, forward: () => Promise<Response>) => Promise<void>;

export interface MisbehavingServer extends AsyncDisposable {
  readonly address: string;
  /** Requests that were watched for, answered wrongly or not. */
  readonly asked: number;
  /** Watches for requests to write whose body holds `text`; the first ones meet these faults, one each. */
  watch(text: string, faults: readonly Fault[]): void;
}

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** Sends a true answer on, its content type and all. */
export async function passOn(answer: Response, response: ServerResponse): Promise<void> {
  response.writeHead(answer.status, { "content-type": answer.headers.get("content-type") ?? "" });
  if (answer.body) for await (const chunk of answer.body) response.write(chunk);
  response.end();
}

export async function misbehave(target: string): Promise<MisbehavingServer> {
  let watched: string | null = null;
  let faults: Fault[] = [];
  let asked = 0;
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = await bodyOf(request);
    const isWatched = request.method !== "GET" && watched !== null && body.includes(watched);
    const forward = (): Promise<Response> =>
      fetch(`${target}${request.url}`, {
        method: request.method ?? "GET",
        headers: Object.fromEntries(
          Object.entries(request.headers).flatMap(([name, value]) =>
            typeof value === "string" &&
            !["host", "connection", "content-length", "transfer-encoding"].includes(name)
              ? [[name, value]]
              : [],
          ),
        ),
        ...(body.length > 0 && { body: new Uint8Array(body) }),
      });
    if (isWatched) asked += 1;
    const fault = isWatched ? faults.shift() : undefined;
    if (fault) await fault(response, forward);
    else await passOn(await forward(), response);
  };
  const server = createServer((request, response) => {
    answer(request, response).catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo; // listens on TCP
  return {
    address: `http://127.0.0.1:${port}`,
    get asked() {
      return asked;
    },
    watch: (text, next) => {
      watched = text;
      faults = [...next];
      asked = 0;
    },
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
