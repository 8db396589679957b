import type { TreeScan } from "../../base.ts";
import { bytesOf } from "../../tree/names.ts";

/**
 * Leaves out what only holds the place of what is not there. Somebody may have put something in one meanwhile: then it
 * is a folder like any other.
 *
 * @param placeholders absolute paths, those of other folders among them
 */
export function withoutPlaceholders(scan: TreeScan, placeholders: readonly string[]): TreeScan {
  const prefix = scan.root === "/" ? "/" : `${scan.root}/`;
  const hidden = new Set(
    placeholders.filter((path) => path.startsWith(prefix)).map((path) => bytesOf(path.slice(prefix.length))),
  );
  if (hidden.size === 0) return scan;
  for (const { path } of scan.entries) {
    if (hidden.has(path)) continue;
    // All above what is real is real.
    for (let end = path.lastIndexOf("/"); end > 0; end = path.lastIndexOf("/", end - 1)) {
      hidden.delete(path.slice(0, end));
    }
  }
  return {
    ...scan,
    entries: scan.entries.filter(({ path }) => !hidden.has(path)),
    closed: scan.closed.filter((path) => !hidden.has(path)),
  };
}
