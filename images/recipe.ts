/** What an image is made from, and the ways to make it on hosts of different kinds. */
import type Docker from "dockerode";

/**
 * `host` takes a program of this machine, `bootstrap` installs a small Debian from the host's own package sources,
 * `registry` builds a Dockerfile whose base an image registry has.
 */
export type ImageVariant = "host" | "bootstrap" | "registry";

/** Label of an image that tells which way it was made. */
export const VARIANT_LABEL = "moorage.image.variant";

export interface BuildContext {
  readonly docker: Docker;
  /** Labels that the finished image must carry. */
  readonly labels: Readonly<Record<string, string>>;
  readonly onProgress: (message: string) => void;
  readonly abortSignal: AbortSignal | undefined;
}

export interface ImageWay {
  readonly variant: ImageVariant;
  /** Why this host cannot go this way, or null when it can. */
  obstacle(docker: Docker, onProgress: (message: string) => void): Promise<string | null>;
  /** Everything the result depends on; a change of it makes present images old. */
  inputs(): Promise<unknown>;
  /** @returns the id of an image that has no name yet */
  build(context: BuildContext): Promise<string>;
}

export interface ImageRecipe {
  /** Short name, as in `moor images build workbench`. */
  readonly name: string;
  /** Reference under which it is tagged. */
  readonly tag: string;
  /** For people, one line. */
  readonly purpose: string;
  /** Tried in order; the first without an obstacle is taken. */
  readonly ways: readonly ImageWay[];
  /** Built only when it is asked for by name. @default false */
  readonly special?: boolean;
  /** A command that must end with 0 in a container of the image before it gets its name. */
  readonly check: readonly string[];
}
