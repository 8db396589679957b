/** Which backends must be tested, by `MOORAGE_REQUIRE`, and what becomes of tests that cannot run. */

export const BACKENDS = ["local", "docker", "ssh", "vercel"] as const;
export type BackendName = (typeof BACKENDS)[number];

/**
 * Reads a list of backends that must be tested.
 *
 * @throws {RangeError} for a name that is no backend's
 */
export function parseRequired(text: string | undefined): readonly BackendName[] {
  const names = (text ?? "").split(",").map((name) => name.trim());
  return names
    .filter((name) => name !== "")
    .map((name) => {
      const backend = BACKENDS.find((one) => one === name);
      if (backend) return backend;
      throw new RangeError(
        `Cannot require backend "${name}" in MOORAGE_REQUIRE: there are ${BACKENDS.join(", ")}`,
      );
    });
}

/**
 * Prints why tests do not run.
 *
 * @returns whether they do
 * @throws {Error} when their backend must be tested
 */
export function canTest(backend: BackendName, subject: string, obstacle: string | null): boolean {
  if (obstacle === null) return true;
  if (parseRequired(process.env.MOORAGE_REQUIRE).includes(backend))
    throw new Error(`Required, but not tested: ${subject}: ${obstacle}`);
  process.stderr.write(`${subject}: not tested here: ${obstacle}\n`);
  return false;
}
