/** The last bytes of a program that ended. */
import { limits } from "../../src/limits.ts";
import { setDeadline } from "../deadline.ts";
import type { ShellStream } from "./stream.ts";

/**
 * Resolves when the last bytes of a program that ended are read. Children may hold its streams open: then once nothing
 * came for `limits.drainMs`, or after `limits.killGraceMs` of a flood.
 */
export async function drained(stream: ShellStream): Promise<void> {
  const sides = [stream.stdout, stream.stderr];
  let news = false;
  const onData = () => {
    news = true;
  };
  const over = Promise.all(
    sides.map((side) =>
      side.readableEnded || side.destroyed
        ? undefined
        : new Promise<void>((resolve) => {
            side.once("end", resolve).once("close", resolve);
          }),
    ),
  );
  for (const side of sides) side.on("data", onData);
  const deadline = performance.now() + limits.killGraceMs;
  let cancel = () => {};
  do {
    // What is held back, for a listener of this call or an earlier one, is still to come.
    news = sides.some((side) => side.isPaused());
    const silence = new Promise<void>((resolve) => {
      cancel = setDeadline(limits.drainMs, resolve);
    });
    if ((await Promise.race([over, silence])) !== undefined) break;
  } while (news && performance.now() < deadline);
  cancel();
  for (const side of sides) side.off("data", onData);
}
