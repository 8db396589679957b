/** What no environment behind the Vercel Sandbox API can keep, wherever its sandboxes are. */
import type { Conformance } from "./index.ts";

export const VERCEL_GAPS = {
  "stdin comes back through the command byte for byte":
    "the API carries a command's output as JSON text, in which bytes that are no UTF-8 have no place",
} satisfies Conformance["gaps"];
