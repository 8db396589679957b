/** Pages of a list: sorted, cut, and continued after the entry that a cursor names. */
import { limits } from "../limits.ts";
import { badRequest } from "./api-error.ts";

export interface Paged<Item> {
  readonly items: readonly Item[];
  readonly pagination: { readonly count: number; readonly next: string | null };
}

type Key = readonly [value: string | number, id: string];

/**
 * The page that a query asks for.
 *
 * @param keyOf sort value and unique id, so that a page continues rightly while entries come and go
 */
export function paginate<Item>(
  all: readonly Item[],
  query: URLSearchParams,
  keyOf: (item: Item) => Key,
): Paged<Item> {
  const limit = Number(query.get("limit") ?? 20);
  if (!(Number.isInteger(limit) && limit >= 1)) throw badRequest("limit must be a whole number from 1");
  const order = query.get("sortOrder") ?? "desc";
  if (order !== "asc" && order !== "desc") throw badRequest("sortOrder must be asc or desc");
  const direction = order === "asc" ? 1 : -1;
  const after = readCursor(query.get("cursor"));
  const rest = all
    .toSorted((a, b) => direction * compare(keyOf(a), keyOf(b)))
    .filter((item) => after === null || direction * compare(keyOf(item), after) > 0);
  const items = rest.slice(0, Math.min(limit, limits.servePageMax));
  const last = items.at(-1);
  const next = last !== undefined && rest.length > items.length ? writeCursor(keyOf(last)) : null;
  return { items, pagination: { count: items.length, next } };
}

function compare([a, idA]: Key, [b, idB]: Key): number {
  if (a !== b) return a < b ? -1 : 1;
  return idA < idB ? -1 : Number(idA > idB);
}

function writeCursor(key: Key): string {
  return Buffer.from(JSON.stringify(key)).toString("base64url");
}

function readCursor(text: string | null): Key | null {
  if (text === null) return null;
  try {
    const [value, id]: unknown[] = JSON.parse(Buffer.from(text, "base64url").toString("utf8"));
    if ((typeof value === "string" || typeof value === "number") && typeof id === "string")
      return [value, id];
  } catch {
    // Told below, as any other text that we did not write.
  }
  throw badRequest("The cursor is not one of this server's");
}
