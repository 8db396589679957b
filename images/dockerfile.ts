/** Builds an image from a Dockerfile and the files beside it. */
import { Readable } from "node:stream";
import type { Pack } from "tar-stream";
import { engineEvents } from "./engine-stream.ts";
import type { BuildContext } from "./recipe.ts";

/**
 * @param archive the Dockerfile and what it copies, finished
 * @returns the id of an image without a name
 * @throws {Error} with the engine's words when a step fails
 */
export async function buildDockerfile(
  archive: Pack,
  { docker, labels, onProgress, abortSignal }: BuildContext,
): Promise<string> {
  const answer = await docker.buildImage(Readable.from(archive), {
    labels: { ...labels },
    ...(abortSignal === undefined ? {} : { abortSignal }),
  });
  let id = "";
  for await (const event of engineEvents(answer)) {
    if (event.stream.startsWith("Step ")) onProgress(event.stream.trim());
    if (event.builtId !== "") id = event.builtId;
  }
  if (id === "") throw new Error("The engine ended the build without an image id");
  return id;
}
