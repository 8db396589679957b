/**
 * Which engine to talk to: the one that the `docker` command would choose, told from the variables and files that
 * it reads. A pure function of those, so that the probe, the containers and `moor doctor` always agree.
 *
 * DOCKER_HOST wins, then DOCKER_CONTEXT, then the configuration's current context, then the default socket.
 * Beyond the command, a rootless or desktop socket is found when the default one is absent.
 */
import { createHash } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { MoorageError } from "../../src/errors.ts";
import { homeFolder } from "../../src/folders.ts";

export interface EndpointTls {
  readonly ca: Buffer | null;
  readonly cert: Buffer | null;
  readonly key: Buffer | null;
  /** Whether the engine's certificate is checked. */
  readonly verify: boolean;
}

export interface DockerEndpoint {
  /** As DOCKER_HOST would spell it. */
  readonly url: string;
  /** What chose it, for people: `DOCKER_HOST`, `context "work"`, `the default socket`. */
  readonly source: string;
  readonly socketPath: string | null;
  readonly host: string | null;
  readonly port: number | null;
  readonly tls: EndpointTls | null;
  /** `1.41`, when DOCKER_API_VERSION pins it. */
  readonly apiVersion: string | null;
  /** Whether the engine runs on this machine, as far as the address tells; only then can host folders be mounted. */
  readonly local: boolean;
}

/** What the choice depends on. */
export interface EndpointHost {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  readonly uid: number;
  /** Null when there is no such file. */
  readFile(path: string): Buffer | null;
  isSocket(path: string): boolean;
}

const DEFAULT_SOCKET = "/var/run/docker.sock";

/** The host that this process runs on. */
export function thisHost(env: NodeJS.ProcessEnv = process.env): EndpointHost {
  return {
    env,
    home: env.HOME || homeFolder(),
    uid: process.getuid?.() ?? 0,
    readFile(path) {
      try {
        return readFileSync(path);
      } catch (error) {
        // Absent is an answer; unreadable is a fault that must name its file.
        if (hasCode(error, "ENOENT", "ENOTDIR")) return null;
        throw new MoorageError("DOCKER_CONTEXT_INVALID", `Cannot read "${path}": ${String(error)}`, {
          suggestion: "Make the docker command's configuration readable, or set DOCKER_HOST.",
          cause: error,
        });
      }
    },
    isSocket: (path) => statSync(path, { throwIfNoEntry: false })?.isSocket() ?? false,
  };
}

/**
 * Chooses the engine.
 *
 * @throws {MoorageError} DOCKER_CONTEXT_INVALID when a context or its files are missing or broken; UNSUPPORTED for
 *   ssh, npipe and fd addresses
 */
export function resolveEndpoint(host: EndpointHost = thisHost()): DockerEndpoint {
  const { env } = host;
  const configDir = env.DOCKER_CONFIG || join(host.home, ".docker");
  if (env.DOCKER_HOST) {
    return fromUrl(env.DOCKER_HOST, "DOCKER_HOST", () => tlsFromEnv(host, configDir), host);
  }
  const [name, chosenBy] = env.DOCKER_CONTEXT
    ? [env.DOCKER_CONTEXT, "DOCKER_CONTEXT"]
    : [currentContext(host, configDir), join(configDir, "config.json")];
  if (name && name !== "default") return fromContext(name, chosenBy, configDir, host);

  const runtimeDirs = [env.XDG_RUNTIME_DIR, `/run/user/${host.uid}`].filter(Boolean);
  const rootless = runtimeDirs.map((dir) => [`${dir}/docker.sock`, "the rootless socket"] as const);
  const desktop = [join(host.home, ".docker/run/docker.sock"), "the desktop socket"] as const;
  const found = host.isSocket(DEFAULT_SOCKET)
    ? undefined
    : [...rootless, desktop].find(([path]) => host.isSocket(path));
  const [path, source] = found ?? [DEFAULT_SOCKET, "the default socket"];
  return fromUrl(`unix://${path}`, source, () => null, host);
}

/** The engine at an address as DOCKER_HOST would spell it, without certificates. @param source for messages */
export function endpointOf(url: string, source: string, host: EndpointHost = thisHost()): DockerEndpoint {
  return fromUrl(url, source, () => null, host);
}

function currentContext(host: EndpointHost, configDir: string): string | undefined {
  const path = join(configDir, "config.json");
  const value = readJson(host, path)?.currentContext;
  return typeof value === "string" ? value : undefined;
}

function fromContext(name: string, chosenBy: string, configDir: string, host: EndpointHost): DockerEndpoint {
  const id = createHash("sha256").update(name).digest("hex");
  const meta = readJson(host, join(configDir, "contexts/meta", id, "meta.json"));
  if (!meta) {
    throw new MoorageError(
      "DOCKER_CONTEXT_INVALID",
      `Cannot use context "${name}" (${chosenBy}): there is no such context in "${configDir}"`,
    );
  }
  const docker = field(field(meta, "Endpoints"), "docker");
  const url = field(docker, "Host");
  if (typeof url !== "string" || url === "") {
    throw new MoorageError(
      "DOCKER_CONTEXT_INVALID",
      `Cannot use context "${name}" (${chosenBy}): it names no Docker endpoint`,
    );
  }
  const skipVerify = field(docker, "SkipTLSVerify") === true;
  const tls = (): EndpointTls | null => {
    const dir = join(configDir, "contexts/tls", id, "docker");
    const files = readTls(host, dir);
    return files.ca || files.cert || files.key || skipVerify ? { ...files, verify: !skipVerify } : null;
  };
  return fromUrl(url, `context "${name}" (${chosenBy})`, tls, host);
}

function tlsFromEnv(host: EndpointHost, configDir: string): EndpointTls | null {
  const verify = Boolean(host.env.DOCKER_TLS_VERIFY);
  if (!verify && !host.env.DOCKER_TLS) return null;
  const dir = host.env.DOCKER_CERT_PATH || configDir;
  const files = readTls(host, dir);
  if (verify && !files.ca) {
    throw new MoorageError(
      "DOCKER_CONTEXT_INVALID",
      `Cannot verify the Docker engine: "${join(dir, "ca.pem")}" is missing`,
      { suggestion: "Point DOCKER_CERT_PATH at the folder with ca.pem, cert.pem and key.pem." },
    );
  }
  return { ...files, verify };
}

function readTls(host: EndpointHost, dir: string) {
  const read = (name: string) => host.readFile(join(dir, name));
  return { ca: read("ca.pem"), cert: read("cert.pem"), key: read("key.pem") };
}

function fromUrl(
  text: string,
  source: string,
  readTlsFiles: () => EndpointTls | null,
  host: EndpointHost,
): DockerEndpoint {
  const apiVersion = host.env.DOCKER_API_VERSION?.replace(/^v/, "") || null;
  const unix = /^unix:\/\/(.*)$/.exec(text);
  if (unix) {
    const socketPath = unix[1] || DEFAULT_SOCKET;
    const url = `unix://${socketPath}`;
    return { url, source, socketPath, host: null, port: null, tls: null, apiVersion, local: true };
  }
  const withScheme = /^[a-z]+:\/\//.test(text) ? text : `tcp://${text}`;
  const scheme = withScheme.slice(0, withScheme.indexOf(":"));
  if (scheme === "ssh") {
    throw new MoorageError(
      "UNSUPPORTED",
      `Cannot use "${text}" (${source}): engines over ssh are not supported`,
      {
        suggestion:
          "Forward the socket with `ssh -nNT -L /tmp/docker.sock:/var/run/docker.sock HOST` and set DOCKER_HOST=unix:///tmp/docker.sock, or use an ssh environment.",
      },
    );
  }
  if (!["tcp", "http", "https"].includes(scheme)) {
    throw new MoorageError(
      "UNSUPPORTED",
      `Cannot use "${text}" (${source}): only unix and tcp addresses are supported`,
    );
  }
  const url = URL.parse(withScheme.replace(/^[a-z]+/, "http"));
  if (!url?.hostname || (url.pathname !== "/" && url.pathname !== "")) {
    throw new MoorageError("DOCKER_CONTEXT_INVALID", `Cannot use "${text}" (${source}): it is no address`, {
      suggestion: "Write it as unix:///path/docker.sock or tcp://host:port.",
    });
  }
  const tls =
    readTlsFiles() ?? (scheme === "https" ? { ca: null, cert: null, key: null, verify: true } : null);
  const hostname = url.hostname.replace(/^\[(.*)\]$/, "$1");
  // The parser drops ":80" as http's default, so the text itself is asked.
  const port = Number(/:(\d+)\/?$/.exec(withScheme)?.[1] ?? (tls ? 2376 : 2375));
  const local = hostname === "localhost" || hostname === "::1" || hostname.startsWith("127.");
  return { url: withScheme, source, socketPath: null, host: hostname, port, tls, apiVersion, local };
}

function readJson(host: EndpointHost, path: string): Record<string, unknown> | null {
  const bytes = host.readFile(path);
  if (!bytes) return null;
  try {
    const value: unknown = JSON.parse(bytes.toString("utf8"));
    // The check is what makes it a record.
    if (typeof value === "object" && value !== null) return value as Record<string, unknown>;
  } catch (error) {
    throw new MoorageError("DOCKER_CONTEXT_INVALID", `Cannot read "${path}": it is not JSON`, {
      cause: error,
    });
  }
  throw new MoorageError("DOCKER_CONTEXT_INVALID", `Cannot read "${path}": it holds no object`);
}

function field(value: unknown, name: string): unknown {
  // The check is what makes it a record.
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>)[name] : undefined;
}

function hasCode(error: unknown, ...codes: string[]): boolean {
  return error instanceof Error && "code" in error && codes.includes(String(error.code));
}
