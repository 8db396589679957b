/** Who needs a placeholder: two sandboxes of one workspace share them, and the last one takes them away. */
import { isOrphan, type LocalRecord, readRecords } from "../owners.ts";
import { removePlaceholders } from "./placeholders.ts";
import { PLACEHOLDER_TEXTS } from "./protected.ts";

/** Placeholders that living sandboxes claim, for one that begins in the same workspace to claim as well. */
export async function claimedPlaceholders(stateDir: string, exceptId: string): Promise<ReadonlySet<string>> {
  const others = (await readRecords(stateDir)).filter(
    (record) => record.id !== exceptId && !isOrphan(record),
  );
  return new Set(others.flatMap(({ placeholders }) => placeholders));
}

/** Placeholders of every sandbox of this machine that was not cleared up after, living or not. */
export async function knownPlaceholders(stateDir: string): Promise<readonly string[]> {
  return (await readRecords(stateDir)).flatMap(({ placeholders }) => placeholders);
}

/**
 * Removes the placeholders of a sandbox that has ended, those apart that another one lives behind.
 *
 * @returns those that are left though they should go, each with the reason
 */
export async function releasePlaceholders(
  stateDir: string,
  { id, placeholders }: Pick<LocalRecord, "id" | "placeholders">,
): Promise<readonly string[]> {
  if (placeholders.length === 0) return [];
  const claimed = await claimedPlaceholders(stateDir, id);
  return removePlaceholders(
    placeholders.filter((path) => !claimed.has(path)),
    PLACEHOLDER_TEXTS,
  );
}
