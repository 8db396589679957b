/** Makes an image of one layer from a tar stream. */
import type { Readable } from "node:stream";
import { engineEvents } from "./engine-stream.ts";
import type { BuildContext } from "./recipe.ts";

/**
 * Imports a root file system as an image without a name.
 *
 * @param changes Dockerfile instructions for the image's configuration: ENV, CMD, WORKDIR
 * @returns the image's id
 * @throws {Error} with the engine's words when it refuses the stream
 */
export async function importRootFilesystem(
  archive: Readable,
  changes: readonly string[],
  { docker, labels, abortSignal }: BuildContext,
): Promise<string> {
  const instructions = [
    ...changes,
    ...Object.entries(labels).map(([key, value]) => `LABEL ${key}=${JSON.stringify(value)}`),
  ];
  const answer = await docker.importImage(archive, {
    // One parameter: the client would send an array as JSON, which the engine does not read.
    changes: instructions.join("\n"),
    ...(abortSignal === undefined ? {} : { abortSignal }),
  });
  let id = "";
  for await (const event of engineEvents(answer)) {
    if (event.status.startsWith("sha256:")) id = event.status;
  }
  if (id === "") throw new Error("The engine ended the import without an image id");
  return id;
}
