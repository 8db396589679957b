/** A served API over environments of this machine or others, and the official client pointed at it. */
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { BaseEnvironment } from "../../environments/base.ts";
import { createLocalEnvironment } from "../../environments/local/index.ts";
import { createVercelEnvironment } from "../../environments/vercel/index.ts";
import { MoorageError } from "../../src/errors.ts";
import type { PlaceFactory, PlaceRequest } from "../../src/serve/place.ts";
import { createSandboxServer, type ServeGrant } from "../../src/serve/server.ts";

export const CREDENTIALS = { token: "secret-of-tests", teamId: "team_a", projectId: "project_a" } as const;

/** Sends the official client's requests to `address` instead of its own server. */
export function fetchFrom(address: string): typeof fetch {
  return (input, init) => {
    // The client's own dispatcher belongs to another copy of undici.
    const { dispatcher, ...rest } = (init ?? {}) as RequestInit & { dispatcher?: unknown };
    void dispatcher;
    return fetch(String(input).replace("https://vercel.com/api", `${address}/api`), rest);
  };
}

export interface Served extends AsyncDisposable {
  readonly address: string;
  /** What every call of the official client needs. */
  readonly client: typeof CREDENTIALS & { readonly fetch: typeof fetch };
  readonly problems: readonly unknown[];
  /** Folders, or ids of environments, that were made for sessions and not removed. */
  readonly places: ReadonlySet<string>;
}

/** An environment behind a served API, not started. */
export function environmentOf(
  { address }: Served,
  options: Parameters<typeof createVercelEnvironment>[0],
): BaseEnvironment {
  return createVercelEnvironment({ baseUrl: `${address}/api`, credentials: CREDENTIALS, ...options });
}

export interface ServeLocalOptions {
  readonly grants?: readonly ServeGrant[];
  /** Whether policies are taken, which nothing here enforces: for what is said of them alone. @default false */
  readonly takesPolicies?: boolean;
}

/** Serves folders of this machine until it is disposed. */
export function serveLocal({ grants, takesPolicies = false }: ServeLocalOptions = {}): Promise<Served> {
  return serve(({ root, places }) => localPlaces(root, places, takesPolicies), grants);
}

/** Where a served API makes its places, and what it notes of them. */
interface Ground {
  readonly root: string;
  readonly places: Set<string>;
}

/** Makes folders of this machine, each with an environment in it. */
export function localPlaces(root: string, places: Set<string>, takesPolicies = false): PlaceFactory {
  return async ({ sandboxId, egress, image, vcpus }: PlaceRequest) => {
    if ((egress !== "open" && !takesPolicies) || image !== null || vcpus !== null) {
      throw new MoorageError("UNSUPPORTED", "Cannot be had on this machine");
    }
    const workspace = join(root, sandboxId);
    await mkdir(workspace);
    places.add(workspace);
    return {
      environment: createLocalEnvironment({ workspace, stateDir: join(root, "state") }),
      remove: async () => {
        await rm(workspace, { recursive: true, force: true });
        places.delete(workspace);
      },
    };
  };
}

/** Serves any places until it is disposed. */
export async function serve(
  factory: (ground: Ground) => PlaceFactory,
  grants: readonly ServeGrant[] = [CREDENTIALS],
): Promise<Served> {
  const root = await mkdtemp(join(tmpdir(), "moorage-serve-"));
  const problems: unknown[] = [];
  const places = new Set<string>();
  const server = createSandboxServer({
    makePlace: factory({ root, places }),
    grants,
    stateDir: join(root, "served"),
    onProblem: (error) => problems.push(error),
  });
  const address = await server.listen();
  return {
    address,
    client: { ...CREDENTIALS, fetch: fetchFrom(address) },
    problems,
    places,
    [Symbol.asyncDispose]: async () => {
      await server.close();
      await rm(root, { recursive: true, force: true });
    },
  };
}
