/** A small internet for tests: a recording resolver, servers, and a dialler that maps public addresses to them. */
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer as createHttpServer, type IncomingMessage } from "node:http";
import { type AddressInfo, connect, createServer, isIP, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect as connectTls } from "node:tls";
import { promisify } from "node:util";
import {
  createEgressProxy,
  type EgressProxy,
  type EgressProxyOptions,
} from "../../../environments/egress/proxy.ts";

export interface SeenRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
}

export interface Internet extends AsyncDisposable {
  /** Names that were asked for, in order. */
  readonly lookups: string[];
  /** `address:port` of every connection that the proxy began. */
  readonly dialled: string[];
  readonly requests: SeenRequest[];
  /** First bytes of every connection to a port other than 80. */
  readonly firstBytes: Buffer[];
  readonly proxy: EgressProxy;
  readonly proxyPort: number;
}

export const PUBLIC = "93.184.216.34";

async function listen(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return portOf(server);
}

export function portOf(server: Server): number {
  // A TCP server's address is an object.
  return (server.address() as AddressInfo).port;
}

/** @param addresses by name; every answer of a name in turn, the last for ever. @default PUBLIC for every name */
export async function createInternet(
  options: Omit<EgressProxyOptions, "listen" | "lookup" | "connect">,
  addresses: Readonly<Record<string, readonly (readonly string[])[]>> = {},
): Promise<Internet> {
  const lookups: string[] = [];
  const dialled: string[] = [];
  const requests: SeenRequest[] = [];
  const firstBytes: Buffer[] = [];
  const sockets = new Set<Socket>();
  const web = createHttpServer(async (request, response) => {
    let body = "";
    try {
      for await (const chunk of request) body += String(chunk);
    } catch {
      // Its client was cut off in the middle of a body: there is nobody to answer.
      return;
    }
    const { method = "", url = "", headers } = request;
    requests.push({ method, url, headers, body });
    if (url.startsWith("/to?")) response.writeHead(302, { Location: url.slice(4) });
    response.end(`hello from ${headers.host}`);
  });
  const echo = createServer((socket) => {
    socket.once("data", (chunk) => firstBytes.push(chunk));
    socket.write("banner\n");
    socket.on("error", () => {});
    socket.pipe(socket);
  });
  for (const server of [web, echo]) {
    server.on("connection", (socket: Socket) => {
      sockets.add(socket);
      socket.once("close", () => sockets.delete(socket));
    });
  }
  const [webPort, echoPort] = await Promise.all([listen(web), listen(echo)]);
  const asked = new Map<string, number>();
  const proxy = await createEgressProxy({
    ...options,
    listen: { port: 0 },
    lookup: async (name) => {
      lookups.push(name);
      const answers = addresses[name] ?? [[PUBLIC]];
      const turn = asked.get(name) ?? 0;
      asked.set(name, turn + 1);
      return answers[Math.min(turn, answers.length - 1)] ?? [];
    },
    connect: (address, port, onread) => {
      dialled.push(`${address}:${port}`);
      const to = { host: "127.0.0.1", port: port === 80 ? webPort : echoPort };
      return connect({ ...to, allowHalfOpen: true, ...(onread && { onread }) });
    },
  });
  return {
    lookups,
    dialled,
    requests,
    firstBytes,
    proxy,
    proxyPort: proxy.port ?? 0,
    [Symbol.asyncDispose]: async () => {
      await proxy.close();
      for (const socket of sockets) socket.destroy();
      web.close();
      echo.close();
    },
  };
}

/** A client that collects what it gets. */
export class Client {
  readonly socket: Socket;
  #received = Buffer.alloc(0);
  #ended = false;
  readonly #waiting = new Set<() => void>();

  constructor(port: number) {
    this.socket = connect({ host: "127.0.0.1", port });
    this.socket.on("data", (chunk: Buffer) => {
      this.#received = Buffer.concat([this.#received, chunk]);
      for (const wake of this.#waiting) wake();
    });
    this.socket.on("error", () => {});
    this.socket.once("close", () => {
      this.#ended = true;
      for (const wake of this.#waiting) wake();
    });
  }

  send(data: string | Uint8Array): this {
    this.socket.write(typeof data === "string" ? Buffer.from(data, "latin1") : data);
    return this;
  }

  get text(): string {
    return this.#received.toString("latin1");
  }

  /** Everything received, once it matches. @throws {Error} when the connection ends before */
  async until(pattern: RegExp): Promise<string> {
    await this.#when(() => pattern.test(this.text) || this.#ended);
    if (!pattern.test(this.text))
      throw new Error(`Ended with ${JSON.stringify(this.text)} before ${pattern}`);
    return this.text;
  }

  /** Everything received, once the other side has closed. */
  async end(): Promise<string> {
    await this.#when(() => this.#ended);
    return this.text;
  }

  #when(condition: () => boolean): Promise<void> {
    return new Promise((resolve) => {
      const wake = () => {
        if (!condition()) return;
        this.#waiting.delete(wake);
        resolve();
      };
      this.#waiting.add(wake);
      wake();
    });
  }
}

/** The first bytes that a real TLS client sends. */
export function clientHello(servername: string | undefined): Promise<Buffer> {
  return new Promise((resolve) => {
    const server = createServer((socket) => {
      socket.on("error", () => {});
      socket.once("data", (chunk) => {
        socket.destroy();
        server.close();
        resolve(chunk);
      });
    }).listen(0, "127.0.0.1", () => {
      const options = {
        host: "127.0.0.1",
        port: portOf(server),
        ...(servername !== undefined && { servername }),
      };
      connectTls(options).on("error", () => {});
    });
  });
}

/** A key and a certificate of its own authority for a name or an address. */
export async function certificate(name: string): Promise<{ readonly key: string; readonly cert: string }> {
  const folder = await mkdtemp(join(tmpdir(), "moorage-certificate-"));
  try {
    const [key, cert] = [join(folder, "key"), join(folder, "cert")];
    const subject = [
      "-subj",
      "/CN=test",
      "-addext",
      `subjectAltName=${isIP(name) === 0 ? "DNS" : "IP"}:${name}`,
    ];
    const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
    const files = ["-keyout", key, "-out", cert];
    await promisify(execFile)("openssl", [
      "req",
      "-x509",
      "-nodes",
      "-days",
      "1",
      ...curve,
      ...subject,
      ...files,
    ]);
    return { key: await readFile(key, "utf8"), cert: await readFile(cert, "utf8") };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
