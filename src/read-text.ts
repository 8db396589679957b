/** Text files that a person names: an ordinary one, or what a shell puts in the place of a name, as `<(command)` does. */
import { readFile, stat } from "node:fs/promises";

/** Names of descriptors that are open already. */
const DESCRIPTOR = /^\/(?:dev\/(?:fd\/\d+|stdin)|proc\/self\/fd\/\d+)$/;

/**
 * Reads a file as UTF-8. A pipe that nobody writes to and a device without an end are refused, since they would keep
 * us, and the end of our process, waiting.
 *
 * @throws {Error} with the reason, in the system's words where it has some
 */
export async function readTextFile(path: string, maxBytes: number): Promise<string> {
  const stats = await stat(path);
  const isNothing = path === "/dev/null";
  if (!stats.isFile() && !stats.isDirectory() && !isNothing && !DESCRIPTOR.test(path)) {
    throw new Error("it is no regular file");
  }
  if (stats.size > maxBytes) throw new Error(`it has ${stats.size} bytes, the limit is ${maxBytes}`);
  return readFile(path, "utf8");
}
