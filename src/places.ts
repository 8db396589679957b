/**
 * Makes environments of what the caller and the configuration say: the specification, the policy beside it,
 * variables.
 */
import { resolve } from "node:path";
import { createEnvironment } from "../environments/backends.ts";
import { BaseEnvironment, type CommonOptions } from "../environments/base.ts";
import { takeCredentials } from "../environments/egress/held.ts";
import type { Egress, SpecOptions } from "../environments/spec.ts";
import { type Clock, systemClock } from "./clock.ts";
import type { Config, ConfiguredEnvironment } from "./config.ts";
import { checkKnown, checkName, defaultName } from "./environment-names.ts";
import { MoorageError } from "./errors.ts";
import type { EventHub } from "./events.ts";
import { ensureStateDir, stateDir } from "./paths.ts";
import { pickDefined } from "./pick-defined.ts";
import { parseSpec } from "./spec.ts";

export interface PlaceOptions {
  /**
   * A specification such as `docker:node:24`, a name from the configuration, an environment, or several by name. The
   * first one is the default. @default those of the configuration
   */
  readonly environments?: string | BaseEnvironment | Readonly<Record<string, string | BaseEnvironment>>;
  /** Folder of the host that the agent works on: run in, or mounted. @default what the backend has */
  readonly workspace?: string;
  /** Variables for every environment. Of the host's own, those on this machine also get what is no credential. */
  readonly env?: Readonly<Record<string, string>>;
  /** `stop` leaves environments and their background processes for the next one of the same name. @default false */
  readonly keep?: boolean;
  /** Time as everything here takes it. @default the machine's monotonic clock */
  readonly clock?: Clock;
}

/** An environment, and whether it is ours to stop. */
export interface Place {
  readonly environment: BaseEnvironment;
  readonly isOurs: boolean;
  /** What it was asked for by, a specification or a configured name; null for one that the caller made. */
  readonly spec: string | null;
}

/** What makes one environment of a specification, for a surface that makes many of its own. */
export interface SpecifiedOptions extends Pick<CommonOptions, "id" | "env"> {
  /** Folder of the host to work on. */
  readonly hostFolder?: string;
  /** Takes the place of the specification's own, option by option. */
  readonly overrides?: SpecOptions;
  readonly stateDir?: string;
}

/**
 * Makes an environment that is not started, and the caller's to stop.
 *
 * @throws {MoorageError} INVALID_SPEC, UNSUPPORTED
 */
export async function makeEnvironment(
  spec: string,
  options: SpecifiedOptions = {},
): Promise<BaseEnvironment> {
  const { overrides = {}, stateDir: folder = stateDir(), ...common } = options;
  const parsed = parseSpec(spec);
  const merged = { ...parsed, options: { ...parsed.options, ...overrides } };
  return createEnvironment(merged, { ...common, stateDir: await ensureStateDir(folder) });
}

/**
 * Makes the environments that are asked for, or else all that are configured; none is started.
 *
 * @throws {MoorageError} INVALID_SPEC, CONFIG_INVALID, UNSUPPORTED
 */
export async function makePlaces(
  options: PlaceOptions,
  config: Config,
  { state, events }: { readonly state: string; readonly events: EventHub },
): Promise<ReadonlyMap<string, Place>> {
  const configured = config.environments ?? {};
  const places = new Map<string, Place>();
  for (const [name, asked] of Object.entries(wanted(options, config))) {
    checkName(name);
    if (asked instanceof BaseEnvironment) {
      places.set(name, { environment: asked, isOurs: false, spec: null });
      continue;
    }
    checkKnown(asked, Object.keys(configured));
    const entry: ConfiguredEnvironment = asEntry(configured[asked] ?? asked);
    const parsed = parseSpec(entry.spec);
    const egress = configuredEgress(entry) ?? parsed.options.egress;
    const held = typeof entry.egress === "object" ? (entry.egress.credentials ?? []) : [];
    const { credentials, variables } = takeCredentials(held, egress ?? "open", process.env);
    const specified = { ...parsed, options: { ...parsed.options, ...pickDefined("egress", egress) } };
    const environment = await createEnvironment(specified, {
      stateDir: state,
      ...(credentials.length > 0 && { credentials }),
      ...pickDefined(
        "hostFolder",
        options.workspace === undefined ? (entry.workspace ?? config.workspace) : resolve(options.workspace),
      ),
      // A placeholder wins: what the proxy holds must not reach the environment by another way.
      env: { ...passedOn(entry.passEnv ?? []), ...entry.env, ...options.env, ...variables },
      ...pickDefined("keep", options.keep ?? entry.keep),
      onProgress: ({ message, fraction }) => {
        events.emit({
          type: "environment-progress",
          environment: name,
          message,
          ...pickDefined("fraction", fraction),
        });
      },
      now: () => (options.clock ?? systemClock).now(),
    });
    places.set(name, { environment, isOurs: true, spec: asked });
  }
  return places;
}

/** Environments by name: those asked for, or else all that are configured, the default one first. */
function wanted(
  { environments }: PlaceOptions,
  config: Config,
): Readonly<Record<string, string | BaseEnvironment>> {
  if (typeof environments === "string") return { [defaultName(environments)]: environments };
  if (environments instanceof BaseEnvironment) return { [defaultName(environments.backend)]: environments };
  if (environments !== undefined && Object.keys(environments).length > 0) return environments;
  const names = Object.keys(config.environments ?? {});
  if (names.length === 0) throw new MoorageError("INVALID_SPEC", "No environment is named");
  const first = config.default ?? names[0];
  const ordered = names.toSorted((a, b) => Number(b === first) - Number(a === first));
  return Object.fromEntries(ordered.map((name) => [name, name]));
}

function asEntry(entry: string | ConfiguredEnvironment): ConfiguredEnvironment {
  return typeof entry === "string" ? { spec: entry } : entry;
}

/** The policy that stands beside a specification, as a specification has it. */
function configuredEgress({ egress }: ConfiguredEnvironment): Egress | undefined {
  if (egress === undefined || typeof egress === "string") return egress;
  return { allow: [...egress.allow, ...(egress.deny ?? []).map((rule) => `!${rule}`)] };
}

/** Host variables that an environment was promised by name; one that is not set here is not set there. */
function passedOn(names: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    names.flatMap((name) => {
      const value = process.env[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}
