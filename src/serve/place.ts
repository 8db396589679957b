/** What the server asks of whoever makes its environments. */
import type { BaseEnvironment } from "../../environments/base.ts";
import type { Egress } from "../../environments/spec.ts";

export interface PlaceRequest {
  /**
   * A word of letters and digits, the same for all sessions of one sandbox, of which no two live at once: so that its
   * workspace is where it was.
   */
  readonly sandboxId: string;
  readonly egress: Egress;
  /** Processors asked for, each with 2 GiB of memory; null when the client left it open. */
  readonly vcpus: number | null;
  /** Image asked for by name; null when the client left it open. */
  readonly image: string | null;
}

export interface Place {
  readonly environment: BaseEnvironment;
  /** Removes what was made beside the environment, which is stopped by then. */
  readonly remove?: () => Promise<void>;
}

/**
 * Makes an environment that is not started, one for each session.
 *
 * @throws {MoorageError} UNSUPPORTED when it cannot be had as asked
 */
export type PlaceFactory = (request: PlaceRequest) => Promise<Place>;
