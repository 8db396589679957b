import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { type EndpointHost, resolveEndpoint } from "../../../environments/docker/endpoint.ts";

function host(
  env: Record<string, string>,
  files: Record<string, string> = {},
  sockets: readonly string[] = ["/var/run/docker.sock"],
): EndpointHost {
  return {
    env,
    home: "/home/me",
    uid: 1000,
    readFile: (path) => (path in files ? Buffer.from(files[path] ?? "") : null),
    isSocket: (path) => sockets.includes(path),
  };
}

const id = createHash("sha256").update("work").digest("hex");
const meta = (docker: object) => ({
  [`/home/me/.docker/contexts/meta/${id}/meta.json`]: JSON.stringify({ Name: "work", Endpoints: { docker } }),
});
const chosen = (env: Record<string, string>, files?: Record<string, string>, sockets?: readonly string[]) => {
  const { url, source, local } = resolveEndpoint(host(env, files, sockets));
  return { url, source, local };
};

describe("resolveEndpoint()", () => {
  it.each([
    ["unix:///tmp/x.sock", "unix:///tmp/x.sock", true],
    ["unix://", "unix:///var/run/docker.sock", true],
    ["tcp://127.0.0.1:2375", "tcp://127.0.0.1:2375", true],
    ["box:2375", "tcp://box:2375", false],
    ["http://[::1]:99/", "http://[::1]:99/", true],
  ])("takes DOCKER_HOST=%s (AV-08)", (value, url, local) => {
    expect(chosen({ DOCKER_HOST: value, DOCKER_CONTEXT: "work" })).toEqual({
      url,
      source: "DOCKER_HOST",
      local,
    });
  });

  it.each([
    ["tcp://box", 2375],
    ["tcp://box:80", 80],
    ["tcp://[fe80::1]:4000", 4000],
  ])("tells the port of %s", (value, port) => {
    expect(resolveEndpoint(host({ DOCKER_HOST: value })).port).toBe(port);
  });

  it.each(["ssh://me@box", "npipe:////./pipe/docker_engine", "fd://3"])(
    "refuses %s with a reason",
    (value) => {
      expect(() => resolveEndpoint(host({ DOCKER_HOST: value }))).toThrow(
        expect.objectContaining({ code: "UNSUPPORTED", message: expect.stringContaining("DOCKER_HOST") }),
      );
    },
  );

  it.each(["tcp://", "tcp://box:99/path", "tcp://bo x"])("refuses %s, which is no address", (value) => {
    expect(() => resolveEndpoint(host({ DOCKER_HOST: value }))).toThrow(
      expect.objectContaining({ code: "DOCKER_CONTEXT_INVALID" }),
    );
  });

  it("takes the context of DOCKER_CONTEXT before the configuration's", () => {
    const files = {
      ...meta({ Host: "unix:///run/work.sock" }),
      "/home/me/.docker/config.json": '{"currentContext":"other"}',
    };
    expect(chosen({ DOCKER_CONTEXT: "work" }, files)).toEqual({
      url: "unix:///run/work.sock",
      source: 'context "work" (DOCKER_CONTEXT)',
      local: true,
    });
  });

  it("takes the configuration's current context, and its folder from DOCKER_CONFIG", () => {
    const files = {
      "/cfg/config.json": '{"currentContext":"work"}',
      [`/cfg/contexts/meta/${id}/meta.json`]: '{"Endpoints":{"docker":{"Host":"tcp://10.0.0.1:2376"}}}',
      [`/cfg/contexts/tls/${id}/docker/ca.pem`]: "CA",
      [`/cfg/contexts/tls/${id}/docker/key.pem`]: "KEY",
    };
    const endpoint = resolveEndpoint(host({ DOCKER_CONFIG: "/cfg" }, files));
    expect(endpoint).toEqual({
      url: "tcp://10.0.0.1:2376",
      source: 'context "work" (/cfg/config.json)',
      socketPath: null,
      host: "10.0.0.1",
      port: 2376,
      tls: { ca: Buffer.from("CA"), cert: null, key: Buffer.from("KEY"), verify: true },
      apiVersion: null,
      local: false,
    });
  });

  it.each([
    ["there is no such context", {}],
    ["it is not JSON", { [`/home/me/.docker/contexts/meta/${id}/meta.json`]: "{" }],
    ["it names no Docker endpoint", meta({})],
  ])("says of a broken context that %s", (reason, files) => {
    expect(() => resolveEndpoint(host({ DOCKER_CONTEXT: "work" }, files))).toThrow(
      expect.objectContaining({ code: "DOCKER_CONTEXT_INVALID", message: expect.stringContaining(reason) }),
    );
  });

  it("takes the certificates of DOCKER_CERT_PATH", () => {
    const files = { "/certs/ca.pem": "CA", "/certs/cert.pem": "CERT", "/certs/key.pem": "KEY" };
    const env = { DOCKER_HOST: "tcp://box", DOCKER_TLS_VERIFY: "1", DOCKER_CERT_PATH: "/certs" };
    const { port, tls } = resolveEndpoint(host(env, files));
    const [ca, cert, key] = ["CA", "CERT", "KEY"].map((text) => Buffer.from(text));
    expect({ port, tls }).toEqual({ port: 2376, tls: { ca, cert, key, verify: true } });
  });

  it("names the file that verification needs and lacks", () => {
    expect(() => resolveEndpoint(host({ DOCKER_HOST: "tcp://box", DOCKER_TLS_VERIFY: "1" }))).toThrow(
      expect.objectContaining({ code: "DOCKER_CONTEXT_INVALID", message: expect.stringContaining("ca.pem") }),
    );
  });

  it("finds a rootless socket when the default one is absent", () => {
    const env = { XDG_RUNTIME_DIR: "/run/user/1000" };
    const rootless = "/run/user/1000/docker.sock";
    expect(chosen(env, {}, [rootless]).url).toBe(`unix://${rootless}`);
    expect(chosen({}, {}, [rootless]).source).toBe("the rootless socket");
    expect(chosen(env, {}, [rootless, "/var/run/docker.sock"]).url).toBe("unix:///var/run/docker.sock");
  });

  it("names the default socket when there is none at all", () => {
    expect(chosen({}, {}, [])).toEqual({
      url: "unix:///var/run/docker.sock",
      source: "the default socket",
      local: true,
    });
  });
});
