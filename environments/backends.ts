/** Every backend, loaded on first use, so that nobody pays for one that is not asked for. */
import { MoorageError } from "../src/errors.ts";
import type { BaseEnvironment } from "./base.ts";
import type { BackendName, Egress, EnvironmentSpec, PlaceOptions, SpecOptions } from "./spec.ts";

type Factory<Name extends BackendName> = (
  spec: Extract<EnvironmentSpec, { backend: Name }>,
  common: PlaceOptions,
) => Promise<BaseEnvironment>;

/** Makes an environment of a specification. */
const BACKENDS: { readonly [Name in BackendName]: Factory<Name> } = {
  local: async ({ options }, { hostFolder, credentials, ...common }) => {
    const { createLocalEnvironment, currentFolder } = await import("./local/index.ts");
    const workspace = options.workspace ?? hostFolder ?? currentFolder();
    if (options.isolation === "bubblewrap") {
      const { createBubblewrapEnvironment } = await import("./local/bubblewrap/index.ts");
      const egress = options.egress ?? "open";
      return createBubblewrapEnvironment({
        ...common,
        workspace,
        egress,
        ...(credentials && { credentials }),
      });
    }
    return createLocalEnvironment({ ...common, workspace });
  },
  docker: async ({ image, options }, common) => {
    const { createDockerEnvironment } = await import("./docker/index.ts");
    return createDockerEnvironment({ image, ...dockerOptions(options, common) });
  },
  "docker+attach": async ({ container, options }, common) => {
    const { createDockerEnvironment } = await import("./docker/index.ts");
    return createDockerEnvironment({ attach: container, ...dockerOptions(options, common) });
  },
  ssh: async ({ host, user, port, options }, { hostFolder, ...common }) => {
    const { createSshEnvironment } = await import("./ssh/index.ts");
    const { workspace, known_hosts: knownHosts } = options;
    if (hostFolder !== undefined) {
      throw new MoorageError(
        "UNSUPPORTED",
        `Cannot work in this machine's folder "${hostFolder}" on ${host}`,
        {
          suggestion: `Name a folder of that machine instead, as in ssh://${user === null ? "" : `${user}@`}${host}/srv/app, or send this one there with --sync.`,
        },
      );
    }
    return createSshEnvironment({
      ...common,
      host,
      user,
      port,
      ...(workspace !== undefined && { workspace }),
      ...(knownHosts && { knownHosts }),
    });
  },
  vercel: async ({ name, options }, { hostFolder, credentials, ...common }) => {
    const { createVercelEnvironment } = await import("./vercel/index.ts");
    const { workspace, base_url: baseUrl, runtime, egress } = options;
    if (credentials?.length) {
      throw new MoorageError(
        "UNSUPPORTED",
        "Cannot hold credentials back: the proxy of a vercel sandbox is not ours",
        {
          suggestion: "Use a container or local?isolation=bubblewrap, whose proxy can put them in.",
        },
      );
    }
    if (hostFolder !== undefined) {
      throw new MoorageError(
        "UNSUPPORTED",
        `Cannot work in this machine's folder "${hostFolder}" in a sandbox`,
        {
          suggestion:
            "Mirror the folder instead (--sync), or let the agent bring its files into the sandbox.",
        },
      );
    }
    return createVercelEnvironment({
      ...common,
      name,
      ...(workspace !== undefined && { workspace }),
      ...(baseUrl !== undefined && { baseUrl }),
      ...(runtime !== undefined && { runtime }),
      ...(egress !== undefined && { egress }),
    });
  },
};

/**
 * Makes the environment that a specification asks for. Nothing is started; a backend that is missing or cannot do
 * what is asked is an error, and nothing else takes its place.
 *
 * @throws {MoorageError} UNSUPPORTED when the backend cannot enforce the egress policy;
 * INVALID_SPEC and others from the backend
 */
export async function createEnvironment(
  spec: EnvironmentSpec,
  common: PlaceOptions,
): Promise<BaseEnvironment> {
  const { keep, id } = spec.options;
  const merged: PlaceOptions = {
    ...common,
    ...(keep !== undefined && { keep }),
    ...(id !== undefined && { id }),
  };
  // The table's entry under a name takes the specs of that name; TypeScript cannot pair the two unions.
  const factory = BACKENDS[spec.backend] as (
    spec: EnvironmentSpec,
    common: PlaceOptions,
  ) => Promise<BaseEnvironment>;
  const environment = await factory(spec, merged);
  requireEgress(environment, spec.options.egress ?? "open");
  return environment;
}

function requireEgress(environment: BaseEnvironment, egress: Egress): void {
  if (egress === "open") return;
  const needed = egress === "none" ? "egress:none" : "egress:allow-list";
  if (environment.capabilities.has(needed)) return;
  throw new MoorageError(
    "UNSUPPORTED",
    `Cannot restrict egress: the ${environment.backend} backend enforces no such policy here`,
    {
      suggestion:
        "Use a container or local?isolation=bubblewrap, which enforce a policy, or leave egress open.",
    },
  );
}

function dockerOptions(options: SpecOptions, { hostFolder, ...common }: PlaceOptions) {
  const { egress, pids, shm_size: shmSize, read_only: readOnly } = options;
  return {
    ...common,
    ...pick(options, ["workspace", "memory", "cpus", "pool", "user", "pull", "platform", "unsafe"]),
    ...(hostFolder !== undefined && { mount: hostFolder }),
    ...(pids !== undefined && { pidsLimit: pids }),
    ...(shmSize !== undefined && { shmSize }),
    ...(readOnly !== undefined && { readOnly }),
    ...(egress !== undefined && { egress }),
  };
}

/** Those of the named options that are set. */
function pick<Key extends keyof SpecOptions>(
  options: SpecOptions,
  keys: readonly Key[],
): Pick<SpecOptions, Key> {
  const entries = keys.flatMap((key) => (options[key] === undefined ? [] : [[key, options[key]]]));
  // Built from the very keys of the type.
  return Object.fromEntries(entries) as Pick<SpecOptions, Key>;
}
