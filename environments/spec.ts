/** What a specification can ask of a backend, as types; nothing here runs. */
import type { CommonOptions, EgressCredential } from "./base.ts";

/** Outbound network: all of it, none, or what is listed; an entry with `!` in front denies. */
export type Egress = "open" | "none" | { readonly allow: readonly string[] };

/** Options as read; which of them a backend takes is its form's matter. */
export interface SpecOptions {
  /** Absolute folder inside the environment. */
  readonly workspace?: string;
  readonly egress?: Egress;
  /** Whether the environment outlives the runtime that made it. */
  readonly keep?: boolean;
  /** Stable name, by which a kept environment is found again. */
  readonly id?: string;
  readonly isolation?: "none" | "bubblewrap";
  /** Bytes; 0 for no limit. */
  readonly memory?: number;
  readonly cpus?: number;
  /** Processes at most. */
  readonly pids?: number;
  /** Started containers held ready. */
  readonly pool?: number;
  /** User, or `user:group`, that commands run as. */
  readonly user?: string;
  readonly pull?: "missing" | "never";
  /** Size of /dev/shm, bytes. */
  readonly shm_size?: number;
  /** `linux/amd64` and the like. */
  readonly platform?: string;
  /** Whether the container's own root is read-only. */
  readonly read_only?: boolean;
  /** Rules of the linter whose faults the operator accepts in a container that is joined. */
  readonly unsafe?: readonly string[];
  readonly known_hosts?: "strict" | "accept-new";
  readonly base_url?: string;
  readonly runtime?: string;
}

/** What a specification asks for. */
export type EnvironmentSpec =
  | { readonly backend: "local"; readonly options: SpecOptions }
  | { readonly backend: "docker"; readonly image: string; readonly options: SpecOptions }
  | { readonly backend: "docker+attach"; readonly container: string; readonly options: SpecOptions }
  | {
      readonly backend: "ssh";
      readonly user: string | null;
      readonly host: string;
      readonly port: number | null;
      readonly options: SpecOptions;
    }
  | { readonly backend: "vercel"; readonly name: string | null; readonly options: SpecOptions };

export type BackendName = EnvironmentSpec["backend"];

/** What comes beside the specification. */
export interface PlaceOptions extends CommonOptions {
  /** Folder of the host that the agent works on: run in, or mounted. */
  readonly hostFolder?: string;
  /** Put into requests by the proxy of an allow-list, so that the environment never holds them. */
  readonly credentials?: readonly EgressCredential[];
}
