/**
 * Environment specifications: one line that says where commands run, such as `docker:node:24?memory=512m`.
 *
 *   local                                   this machine
 *   docker:IMAGE                            a new container
 *   docker+attach:CONTAINER                 a container that someone else owns
 *   ssh://[user@]host[:port][/workspace]    a machine over SSH
 *   vercel[:NAME]                           a remote sandbox
 *
 * Each takes `?key=value&...`; keys and values are percent-decoded. An image may hold `:`, `/` and `@sha256:...`, so
 * only the first `:` and the first `?` have a meaning.
 */
import type { BackendName, EnvironmentSpec, SpecOptions } from "../environments/spec.ts";
import { MoorageError } from "./errors.ts";
import { didYouMean } from "./nearest.ts";
import { OPTIONS, type OptionName } from "./spec-options.ts";

interface Form {
  /** How the specification looks, for messages. */
  readonly usage: string;
  readonly options: readonly OptionName[];
  readonly parse: (target: string | null, options: SpecOptions, spec: string) => EnvironmentSpec;
}

const COMMON = ["workspace", "egress", "keep", "id"] as const;
const CONTAINER = [
  "memory",
  "cpus",
  "pids",
  "pool",
  "user",
  "pull",
  "platform",
  "read_only",
  "shm_size",
] as const;

/** The forms by backend. A backend whose form is known may still be missing from the backend table. */
export const FORMS: Readonly<Record<BackendName, Form>> = {
  local: {
    usage: "local",
    options: [...COMMON, "isolation"],
    parse: (target, options, spec) => {
      if (target !== null) refuse(spec, "local takes no target");
      return { backend: "local", options };
    },
  },
  docker: {
    usage: "docker:IMAGE",
    options: [...COMMON, ...CONTAINER],
    parse: (target, options, spec) => ({
      backend: "docker",
      image: required(target, spec, "image", IMAGE),
      options,
    }),
  },
  "docker+attach": {
    usage: "docker+attach:CONTAINER",
    // Kept it is in any case.
    options: ["workspace", "egress", "id", "user", "unsafe"],
    parse: (target, options, spec) => ({
      backend: "docker+attach",
      container: required(target, spec, "container", CONTAINER_NAME),
      options,
    }),
  },
  ssh: {
    usage: "ssh://[user@]host[:port][/workspace]",
    options: [...COMMON, "known_hosts"],
    parse: parseSsh,
  },
  vercel: {
    usage: "vercel[:NAME]",
    options: [...COMMON, "base_url", "runtime"],
    parse: (target, options, spec) => ({
      backend: "vercel",
      name: target === null ? null : required(target, spec, "name", CONTAINER_NAME),
      options,
    }),
  },
};

/** `name:tag@digest` with registry and path, or an image id; the engine has the last word. */
const IMAGE = /^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$/;
const CONTAINER_NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]*$/;
const HOST = /^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$|^\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9]+)?\]$/;
const USER = /^[A-Za-z0-9_][A-Za-z0-9_.@\\+-]*$/;

/**
 * Reads a specification. Touches nothing.
 *
 * @throws {MoorageError} INVALID_SPEC naming what is wrong and the nearest valid word
 */
export function parseSpec(spec: string): EnvironmentSpec {
  if (spec === "") refuse(spec, "it is empty");
  if (/[\s\u0000-\u001f\u007f]/.test(spec)) refuse(spec, "it holds a space or a control character");
  const queryAt = spec.indexOf("?");
  const place = queryAt < 0 ? spec : spec.slice(0, queryAt);
  const colonAt = place.indexOf(":");
  const backend = colonAt < 0 ? place : place.slice(0, colonAt);
  if (!isBackend(backend)) {
    const names = Object.keys(FORMS);
    refuse(
      spec,
      `unknown backend "${backend}"${didYouMeanSpec(spec, names)} (there are: ${names.join(", ")})`,
    );
  }
  const form = FORMS[backend];
  const options = queryAt < 0 ? {} : parseOptions(spec, spec.slice(queryAt + 1), backend);
  return form.parse(colonAt < 0 ? null : place.slice(colonAt + 1), options, spec);
}

/**
 * The specification that a word was meant as, in words for a message: nearest to a valid name, or a login as ssh takes
 * it, or an image as docker does.
 */
export function didYouMeanSpec(word: string, names: readonly string[]): string {
  const [, login, rest = ""] =
    /^([^\s:/?@]+@(?!sha256:)[^\s:/?@]+)((?::\d+)?(?:\/.*)?|:\/.*)$/.exec(word) ?? [];
  if (login !== undefined) return `; did you mean "ssh://${login}${rest.replace(/^:\//, "/")}"?`;
  const [place = ""] = word.split("?", 1);
  const [head = ""] = place.split(":", 1);
  const isImage = /[:/]/.test(place) && IMAGE.test(place) && !/@(?!sha256:)|\/\//.test(place);
  return didYouMean(head, names) || (isImage ? `; did you mean "docker:${word}"?` : "");
}

function isBackend(name: string): name is BackendName {
  return Object.hasOwn(FORMS, name);
}

function parseOptions(spec: string, query: string, backend: BackendName): SpecOptions {
  const names = FORMS[backend].options;
  const options: Record<string, unknown> = {};
  for (const pair of query.split("&")) {
    const equals = pair.indexOf("=");
    const key = decode(spec, equals < 0 ? pair : pair.slice(0, equals));
    const name = names.find((candidate) => candidate === key);
    if (name === undefined) {
      refuse(
        spec,
        `unknown option "${key}"${didYouMean(key, names)} (${backend} takes: ${names.join(", ")})`,
      );
    }
    if (Object.hasOwn(options, name)) refuse(spec, `option "${name}" stands there twice`);
    const value = equals < 0 ? null : decode(spec, pair.slice(equals + 1));
    if (value?.startsWith("-")) refuse(spec, `the value of "${name}" begins with "-"`);
    try {
      options[name] = OPTIONS[name](value);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      refuse(spec, `option "${name}": ${reason}`, error);
    }
  }
  // Every key was put there by the reader of that very option.
  return options as SpecOptions;
}

function parseSsh(target: string | null, options: SpecOptions, spec: string): EnvironmentSpec {
  const [, authority = "", path = ""] = /^\/\/([^/]*)(\/.*)?$/.exec(target ?? "") ?? [];
  const at = authority.lastIndexOf("@");
  const user = at < 0 ? null : decode(spec, authority.slice(0, at));
  if (user?.includes(":"))
    refuse(spec, "a password does not belong into a specification; use a key or an agent");
  if (user !== null && !USER.test(user)) refuse(spec, `"${user}" is no user name`);
  const [, host = "", portText] = /^(\[[^\]]*\]|[^:]*)(?::(.*))?$/.exec(authority.slice(at + 1)) ?? [];
  if (!HOST.test(host))
    refuse(spec, host === "" ? `it names no host; write ${FORMS.ssh.usage}` : `"${host}" is no host`);
  const port = portText === undefined ? null : Number(portText);
  const isPort = port === null || (/^\d+$/.test(portText ?? "") && port >= 1 && port <= 65_535);
  if (!isPort) refuse(spec, `"${portText}" is no port`);
  const workspace = decode(spec, path);
  if (workspace.length > 1 && options.workspace !== undefined) refuse(spec, "it names two workspaces");
  return {
    backend: "ssh",
    user,
    host: host.replace(/^\[(.*)\]$/, "$1"),
    port,
    options: workspace.length > 1 ? { ...options, workspace } : options,
  };
}

function required(target: string | null, spec: string, what: string, pattern: RegExp): string {
  if (!target) {
    const [backend = ""] = spec.split(/[:?]/);
    refuse(spec, `it names no ${what}${isBackend(backend) ? `; write ${FORMS[backend].usage}` : ""}`);
  }
  if (!pattern.test(target)) refuse(spec, `"${target}" is no ${what} name`);
  return target;
}

function decode(spec: string, text: string): string {
  try {
    const decoded = decodeURIComponent(text);
    if (!/[\u0000-\u001f\u007f]/.test(decoded)) return decoded;
  } catch (error) {
    refuse(spec, `"${text}" is not percent-encoded correctly`, error);
  }
  return refuse(spec, `"${text}" holds a control character`);
}

function refuse(spec: string, reason: string, cause?: unknown): never {
  throw new MoorageError("INVALID_SPEC", `Cannot use environment "${spec}": ${reason}`, { cause });
}
