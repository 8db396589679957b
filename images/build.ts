/**
 * The images that Moorage brings, and their build. An image carries a key of everything it was made from, so a
 * build does nothing while that is unchanged. A further image is one entry of `RECIPES`.
 */
import { createHash } from "node:crypto";
import type Docker from "dockerode";
import { type DockerEngine, openEngine } from "../environments/docker/index.ts";
import { isMoorageError, MoorageError } from "../src/errors.ts";
import { didYouMean } from "../src/nearest.ts";
import { workbenchFromPackages } from "./bootstrap.ts";
import { busyboxFromHost } from "./busybox.ts";
import { type ImageRecipe, type ImageVariant, type ImageWay, VARIANT_LABEL } from "./recipe.ts";
import { dockerfileWay } from "./registry.ts";
import { sshdFromHost } from "./sshd.ts";

const KEY_LABEL = "moorage.image.key";

const RECIPES: readonly ImageRecipe[] = [
  {
    name: "busybox",
    tag: "moorage/busybox:latest",
    purpose: "nothing but BusyBox: a shell without bash or GNU tools",
    ways: [busyboxFromHost, dockerfileWay("busybox")],
    check: ["sh", "-c", "test -d /tmp && ls / >/dev/null"],
  },
  {
    name: "workbench",
    tag: "moorage/workbench:latest",
    purpose: "bash, git, ripgrep, python3, node and the usual tools",
    ways: [dockerfileWay("workbench"), workbenchFromPackages],
    check: ["bash", "-c", "node --version && git --version && rg --version && python3 --version"],
  },
  {
    name: "sshd",
    tag: "moorage/sshd:latest",
    purpose: "for the tests: the workbench with SSH servers and further login shells",
    special: true,
    ways: [sshdFromHost, dockerfileWay("sshd")],
    check: ["sh", "-c", "sshd -V; dropbear -V && fish --version && tcsh --version && id sshd"],
  },
];

export interface ImageStatus {
  readonly name: string;
  readonly tag: string;
  readonly purpose: string;
  /** Null when the engine has no such image. */
  readonly id: string | null;
  /** Null when there is none, or when it was not built by Moorage. */
  readonly variant: ImageVariant | null;
  /** Whether it was made from what this checkout and host would make it from. */
  readonly current: boolean;
  readonly sizeBytes: number | null;
}

export interface BuildImagesOptions {
  /** Short names. @default all but those that are built only by their names */
  readonly names?: readonly string[];
  /** Gets one short line per step. */
  readonly onProgress?: (message: string) => void;
  /** @default the one that the `docker` command would use */
  readonly engine?: DockerEngine;
  /** Builds also what is current. @default false */
  readonly force?: boolean;
  readonly abortSignal?: AbortSignal;
}

/**
 * Builds the images that are missing or old, each by the first way that this host can go.
 *
 * @returns the state of each afterwards, in order
 * @throws {MoorageError} INVALID_ARGUMENTS for an unknown name, DOCKER_UNREACHABLE, IMAGE_PULL_FAILED when no way is
 * open, IMAGE_BUILD_FAILED, ABORTED, and the engine's own
 */
export async function buildImages(options: BuildImagesOptions = {}): Promise<readonly ImageStatus[]> {
  const { onProgress = () => {}, abortSignal, force = false } = options;
  const recipes = select(options.names);
  const engine = options.engine ?? (await openEngine());
  const states: ImageStatus[] = [];
  for (const recipe of recipes) {
    const before = await inspect(engine, recipe);
    if (before.current && !force) {
      states.push(before);
      continue;
    }
    const told = (message: string): void => onProgress(`${recipe.name}: ${message}`);
    await build(engine.docker, recipe, before, told, abortSignal);
    states.push(await inspect(engine, recipe));
  }
  return states;
}

/**
 * Tells what the engine has of Moorage's images.
 *
 * @throws {MoorageError} DOCKER_UNREACHABLE, DOCKER_PERMISSION, DOCKER_CONTEXT_INVALID
 */
export async function listImages(
  options: { readonly engine?: DockerEngine } = {},
): Promise<readonly ImageStatus[]> {
  const engine = options.engine ?? (await openEngine());
  return Promise.all(RECIPES.map((recipe) => inspect(engine, recipe)));
}

function select(names: readonly string[] | undefined): readonly ImageRecipe[] {
  if (names === undefined) return RECIPES.filter(({ special }) => !special);
  return names.map((name) => {
    const recipe = RECIPES.find((one) => one.name === name);
    if (recipe) return recipe;
    const known = RECIPES.map((one) => one.name);
    throw new MoorageError(
      "INVALID_ARGUMENTS",
      `Cannot build image "${name}"${didYouMean(name, known)} (there are: ${known.join(", ")})`,
      { suggestion: "`moor images list` says which there are." },
    );
  });
}

async function build(
  docker: Docker,
  recipe: ImageRecipe,
  before: ImageStatus,
  onProgress: (message: string) => void,
  abortSignal: AbortSignal | undefined,
): Promise<void> {
  const way = await firstOpenWay(docker, recipe, onProgress);
  const labels = { [KEY_LABEL]: await keyOf(way), [VARIANT_LABEL]: way.variant };
  onProgress(`building ${recipe.tag} (${way.variant})`);
  try {
    const id = await way.build({ docker, labels, onProgress, abortSignal });
    try {
      await check(docker, id, recipe.check);
    } catch (error) {
      await removeUnlessUsed(docker, id);
      throw error;
    }
    const [repo = recipe.tag, tag = "latest"] = recipe.tag.split(":");
    await docker.getImage(id).tag({ repo, tag });
    if (before.id !== null && before.id !== id) await removeUnlessUsed(docker, before.id);
  } catch (error) {
    if (abortSignal?.aborted) {
      throw new MoorageError("ABORTED", `Cannot build ${recipe.tag}: it was aborted`, { cause: error });
    }
    const reason = error instanceof Error ? error.message : String(error);
    throw new MoorageError("IMAGE_BUILD_FAILED", `Cannot build ${recipe.tag} (${way.variant}): ${reason}`, {
      cause: error,
    });
  }
}

async function firstOpenWay(
  docker: Docker,
  recipe: ImageRecipe,
  onProgress: (message: string) => void,
): Promise<ImageWay> {
  const obstacles: string[] = [];
  for (const way of recipe.ways) {
    const obstacle = await way.obstacle(docker, onProgress);
    if (obstacle === null) return way;
    obstacles.push(`${way.variant}: ${obstacle}`);
  }
  throw new MoorageError("IMAGE_PULL_FAILED", `Cannot build ${recipe.tag}: ${obstacles.join("; ")}`, {
    suggestion:
      "Give the engine a way to its registry, or install the Debian packages that the message names.",
  });
}

async function inspect(engine: DockerEngine, recipe: ImageRecipe): Promise<ImageStatus> {
  const { name, tag, purpose, ways } = recipe;
  const absent: ImageStatus = {
    name,
    tag,
    purpose,
    id: null,
    variant: null,
    current: false,
    sizeBytes: null,
  };
  try {
    const { Id: id, Size: sizeBytes, Config: config } = await engine.docker.getImage(tag).inspect();
    const labels = config.Labels ?? {};
    const way = ways.find((one) => one.variant === labels[VARIANT_LABEL]);
    const current = way !== undefined && (await way.inputs().then(digest, () => null)) === labels[KEY_LABEL];
    return { ...absent, id, sizeBytes, variant: way?.variant ?? null, current };
  } catch (error) {
    const failure = engine.explain(error, `look for image ${tag}`);
    if (isMoorageError(failure, "IMAGE_MISSING")) return absent;
    throw failure;
  }
}

async function keyOf(way: ImageWay): Promise<string> {
  return digest(await way.inputs());
}

function digest(inputs: unknown): string {
  return createHash("sha256").update(JSON.stringify(inputs)).digest("hex").slice(0, 32);
}

/** Runs a command in a throw-away container, so that an image that cannot work never gets a name. */
async function check(docker: Docker, image: string, command: readonly string[]): Promise<void> {
  const container = await docker.createContainer({
    Image: image,
    Cmd: [...command],
    NetworkDisabled: true,
    Labels: { "moorage.image.check": "true" },
  });
  try {
    await container.start();
    const { StatusCode: exitCode } = await container.wait();
    if (exitCode === 0) return;
    const log = await container.logs({ stdout: true, stderr: true });
    const lastWords = log
      .toString("utf8")
      .replaceAll(/[^\x20-\x7e\n]/g, "")
      .trim();
    throw new Error(`its check "${command.join(" ")}" ended with exit code ${exitCode}: ${lastWords}`);
  } finally {
    await container.remove({ force: true });
  }
}

async function removeUnlessUsed(docker: Docker, id: string): Promise<void> {
  try {
    await docker.getImage(id).remove();
  } catch (error) {
    // A container still uses it, or it has another name: whoever owns that keeps it.
    if ((error as { statusCode?: number }).statusCode === 409) return;
    throw error;
  }
}
