/** Looks for an image on an engine. */
import type Docker from "dockerode";

/** @returns null when the engine has none of that name */
export async function findImage(docker: Docker, name: string): Promise<Docker.ImageInspectInfo | null> {
  try {
    return await docker.getImage(name).inspect();
  } catch (error) {
    // The engine's errors carry the status of the answer.
    if ((error as { statusCode?: number }).statusCode === 404) return null;
    throw error;
  }
}
