/** The way for hosts that reach an image registry: pull a base and build the Dockerfile of this folder on it. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type Docker from "dockerode";
import { pack } from "tar-stream";
import { buildDockerfile } from "./dockerfile.ts";
import { engineEvents } from "./engine-stream.ts";
import { findImage } from "./find-image.ts";
import type { ImageWay } from "./recipe.ts";

/** A registry that has not begun to answer by then is taken as out of reach, milliseconds. */
const ANSWER_TIMEOUT_MS = 15_000;

/**
 * Builds `images/<name>/Dockerfile`, whose `BASE` argument has the base image as its default.
 */
export function dockerfileWay(name: string): ImageWay {
  const dockerfile = () => readFile(join(import.meta.dirname, name, "Dockerfile"), "utf8");
  return {
    variant: "registry",
    async obstacle(docker, onProgress) {
      const base = baseOf(await dockerfile());
      if (await findImage(docker, base)) return null;
      return pull(docker, base, onProgress);
    },
    async inputs() {
      return { dockerfile: await dockerfile() };
    },
    async build(context) {
      const archive = pack();
      archive.entry({ name: "Dockerfile" }, await dockerfile());
      archive.finalize();
      return buildDockerfile(archive, context);
    },
  };
}

function baseOf(dockerfile: string): string {
  const base = /^ARG BASE=(\S+)$/m.exec(dockerfile)?.[1];
  if (base === undefined) throw new Error("The Dockerfile names no base: ARG BASE=image is missing");
  return base;
}

/** @returns why the image cannot be had, or null when it is there now */
async function pull(
  docker: Docker,
  image: string,
  onProgress: (message: string) => void,
): Promise<string | null> {
  const patience = new AbortController();
  const timer = setTimeout(() => patience.abort(), ANSWER_TIMEOUT_MS);
  try {
    const [fromImage, tag = "latest"] = image.split(":");
    const answer = await docker.createImage({ fromImage, tag, abortSignal: patience.signal });
    clearTimeout(timer);
    for await (const event of engineEvents(answer)) {
      if (event.status !== "Downloading" && event.status !== "Extracting") {
        onProgress(`${image}: ${event.status}${event.id ? ` ${event.id}` : ""}`);
      }
    }
    return null;
  } catch (error) {
    if (patience.signal.aborted)
      return `the registry of ${image} did not answer in ${ANSWER_TIMEOUT_MS / 1000} s`;
    return `${image} cannot be pulled: ${error instanceof Error ? error.message : String(error)}`;
  } finally {
    clearTimeout(timer);
  }
}
