/**
 * The suite that asks a backend every sentence of the environment's contract, published as `moorage/conformance`.
 *
 * Call `describeEnvironment` in a test file of vitest. A claim that the backend cannot keep is named in `gaps` with
 * its reason; it is run all the same and must fail, so that a gap that has closed breaks the build.
 *
 * @see docs/write-a-backend.md
 */
import { afterAll, beforeAll, describe, it, type TestContext } from "vitest";
import type { BaseEnvironment } from "../../environments/base.ts";
import { argv } from "./argv.ts";
import { exec } from "./exec.ts";
import { fileChanges } from "./file-changes.ts";
import { files } from "./files.ts";
import { health } from "./health.ts";
import { kill } from "./kill.ts";
import { leftBehind } from "./left-behind.ts";
import { lifecycle } from "./lifecycle.ts";
import { output } from "./output.ts";
import { processes } from "./processes.ts";
import { sessions } from "./sessions.ts";
import { state } from "./state.ts";
import { stdin } from "./stdin.ts";
import type { Cases, Facts } from "./support.ts";
import { unbreakable } from "./unbreakable.ts";
import { yielding } from "./yield.ts";

export type { Case, CaseContext, Facts } from "./support.ts";

/** Every case, by area. */
export const AREAS = {
  exec,
  argv,
  sessions,
  state,
  unbreakable,
  output,
  stdin,
  kill,
  leftBehind,
  yielding,
  processes,
  files,
  fileChanges,
  lifecycle,
  health,
} as const;

export type Area = keyof typeof AREAS;

/** Areas whose cases wait more than they work; they run side by side, a few at once. */
const WAITING: ReadonlySet<Area> = new Set<Area>([
  "kill",
  "leftBehind",
  "yielding",
  "processes",
  "lifecycle",
]);

/** The title of a case; a gap that names none does not compile. */
export type CaseName = { [Each in Area]: keyof (typeof AREAS)[Each] }[Area];

export interface Conformance {
  /** Stands in the titles. */
  readonly name: string;
  /** Makes an environment that is not started. Called once for each area, and by cases that need their own. */
  readonly create: () => Promise<BaseEnvironment> | BaseEnvironment;
  /** Claims that this backend cannot keep, each with the reason. A case listed here must fail. */
  readonly gaps?: Readonly<Partial<Record<CaseName, string>>>;
  readonly facts?: Facts;
  /** Areas to ask, while a backend is being written. A backend that is done has none left out. @default all */
  readonly areas?: readonly Area[];
  /** Why the backend cannot be reached on this machine: nothing is asked then, and the reason stands in the title. */
  readonly unavailable?: string;
  /** Longest time of one case, milliseconds. @default {120_000} */
  readonly caseTimeoutMs?: number;
}

/** Registers the whole suite for one backend with vitest, area by area, each on a fresh environment. */
export function describeEnvironment({
  name,
  create,
  gaps = {},
  facts = {},
  areas = Object.keys(AREAS) as Area[], // the keys of a constant object
  unavailable,
  caseTimeoutMs = 120_000,
}: Conformance): void {
  const reasons = new Map<string, string>(Object.entries(gaps));
  const title = `${name} environment${unavailable === undefined ? "" : ` (not tested: ${unavailable})`}`;
  describe.skipIf(unavailable !== undefined)(title, () => {
    for (const area of areas) {
      const cases: Cases = AREAS[area];
      const group = WAITING.has(area) ? describe.concurrent : describe;
      group(area, () => {
        let environment: BaseEnvironment;
        beforeAll(async () => {
          environment = await create();
          await environment.start();
        }, caseTimeoutMs);
        afterAll(() => environment?.stop(), caseTimeoutMs);

        for (const [title, check] of Object.entries(cases)) {
          const reason = reasons.get(title);
          const run = ({ skip }: TestContext) =>
            check({ environment, create: async () => create(), facts, skip });
          if (reason === undefined) it(title, { timeout: caseTimeoutMs }, run);
          else it.fails(`${title} (gap: ${reason})`, { timeout: caseTimeoutMs }, run);
        }
      });
    }
  });
}
