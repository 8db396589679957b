/** The suite on sandboxes that this project's own server makes, through the official client. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Sandbox } from "@vercel/sandbox";
import { afterAll, beforeAll } from "vitest";
import { listVercel } from "../../environments/vercel/index.ts";
import { environmentOf, type Served } from "../serve/served.ts";
import { type Conformance, describeEnvironment } from "./index.ts";

/** What no environment behind the Vercel Sandbox API can keep, wherever its sandboxes are. */
const GAPS = {
  "stdin comes back through the command byte for byte":
    "the API carries a command's output as JSON text, in which bytes that are no UTF-8 have no place",
} satisfies Conformance["gaps"];

/** What a POSIX shell cannot tell through such an API, where bash writes it in ASCII. */
export const SH_GAPS = {
  "bytes that are no UTF-8 are kept in values":
    "a POSIX shell prints its variables' bytes as they are, and the API carries text",
} satisfies Conformance["gaps"];

/** Registers the suite, or a part of it, for what `serve` serves. */
export function describeVercel({
  serve,
  gaps = {},
  ...conformance
}: Pick<Conformance, "name" | "gaps" | "areas" | "unavailable"> & {
  readonly serve: () => Promise<Served>;
}): void {
  let served: Served;
  let stateDir: string;
  beforeAll(async () => {
    if (conformance.unavailable !== undefined) return;
    served = await serve();
    stateDir = await mkdtemp(join(tmpdir(), "moorage-vercel-"));
  });
  afterAll(async () => {
    if (conformance.unavailable !== undefined) return;
    await served[Symbol.asyncDispose]();
    await rm(stateDir, { recursive: true, force: true });
  });
  describeEnvironment({
    ...conformance,
    gaps: { ...GAPS, ...gaps },
    // Each request starts several programs, and client, server and sandbox share one machine.
    caseTimeoutMs: 150_000,
    create: () => environmentOf(served, { stateDir }),
    facts: {
      leftovers: async ({ id }) => {
        const name = `moorage-${id}`;
        const { sandboxes } = await Sandbox.list({ ...served.client, namePrefix: name });
        const records = (await listVercel({ stateDir, env: {} })).filter((entry) => entry.id === id);
        return [...sandboxes, ...records].map((left) => JSON.stringify(left));
      },
    },
  });
}
