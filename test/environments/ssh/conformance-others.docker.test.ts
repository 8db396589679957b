/**
 * What a login shell or a server could touch: the way of words, bytes and files to a command and back. All of the
 * suite is asked of these places by the slow tests.
 */
import type { Area } from "../../conformance/index.ts";
import { DASH, DROPBEAR, describePlaces, FISH, TCSH } from "./suite.ts";

const areas: readonly Area[] = ["argv", "health"];

await describePlaces([
  ...[DASH, FISH, TCSH].map((place) => ({ ...place, areas })),
  // A server without sftp: files go another way.
  { ...DROPBEAR, areas: [...areas, "files"] },
]);
