/** What a restore would change, as a unified difference. */
import { createTwoFilesPatch } from "diff";
import type { BaseEnvironment } from "../../environments/base.ts";
import { contentUpTo } from "../../environments/tree/content.ts";
import { showName } from "../../environments/tree/names.ts";
import type { RestorePlan } from "./plan.ts";
import { isOtherOwner, ownerOf, type PathState } from "./states.ts";
import type { CheckpointStore } from "./store.ts";
import type { Place } from "./take.ts";

/** Larger contents are told to differ, and not how, bytes. */
const SHOWN_MAX_BYTES = 1024 * 1024;

/** From the checkpoint to the present: what was changed since. */
export async function comparePlan(
  store: CheckpointStore,
  environment: BaseEnvironment,
  place: Place,
  plan: RestorePlan,
  present: ReadonlyMap<string, PathState>,
): Promise<string> {
  const paths = [...new Set([...plan.set.keys(), ...plan.remove])].sort();
  const now = new Map<string, Buffer>();
  const wanted = paths.filter((path) => {
    const state = present.get(path);
    return state?.kind === "file" && state.size <= SHOWN_MAX_BYTES && !path.startsWith("/");
  });
  await environment.tree.pack(place.root, wanted, async ({ path, content }) => {
    const bytes = await contentUpTo(content, SHOWN_MAX_BYTES);
    if (bytes) now.set(path, bytes);
  });
  const parts: string[] = [];
  for (const path of paths) {
    const then = plan.set.get(path);
    const state = present.get(path);
    const before =
      then?.kind === "file" && then.size <= SHOWN_MAX_BYTES ? await store.blobs.read(then.hash) : null;
    parts.push(
      ...comparePath(showName(path), { state: then, bytes: before }, { state, bytes: now.get(path) ?? null }),
    );
  }
  return parts.join("");
}

interface SideOf {
  readonly state: PathState | undefined;
  readonly bytes: Buffer | null;
}

function comparePath(name: string, before: SideOf, after: SideOf): string[] {
  const lines: string[] = [];
  const words = { before: wordsFor(before.state), after: wordsFor(after.state) };
  if (words.before !== words.after) lines.push(`${name}: ${words.before} -> ${words.after}\n`);
  if (isOtherOwner(before.state, after.state))
    lines.push(`${name}: owner ${ownerWords(before.state)} -> ${ownerWords(after.state)}\n`);
  const hasFile = before.state?.kind === "file" || after.state?.kind === "file";
  const isSame =
    before.state?.kind === "file" && after.state?.kind === "file" && before.state.hash === after.state.hash;
  if (!hasFile || isSame) return lines;
  const [old, recent] = [textFor(before), textFor(after)];
  // Two contents that are no UTF-8 may differ and read alike.
  const isOneText = old === recent && before.state?.kind === after.state?.kind;
  if (old === null || recent === null || isOneText)
    return [...lines, `${name}: binary or large contents differ\n`];
  const from = before.state?.kind === "file" ? `a/${name}` : "/dev/null";
  const to = after.state?.kind === "file" ? `b/${name}` : "/dev/null";
  const patch = createTwoFilesPatch(from, to, old, recent, undefined, undefined, { timeout: 2_000 });
  if (patch === undefined) return [...lines, `${name}: contents differ in many places\n`];
  return [...lines, patch.replace(/^=+\n/, "")];
}

function textFor({ state, bytes }: SideOf): string | null {
  if (state?.kind !== "file") return "";
  if (bytes === null || bytes.subarray(0, 8_000).includes(0)) return null;
  return bytes.toString("utf8");
}

function wordsFor(state: PathState | undefined): string {
  switch (state?.kind) {
    case "file":
      return `file ${octal(state.mode)}`;
    case "directory":
      return `folder ${octal(state.mode)}`;
    case "symlink":
      return `link to ${showName(state.target)}`;
    case "kept":
      return "something that is not kept";
    default:
      return "nothing";
  }
}

function ownerWords(state: PathState | undefined): string {
  const owner = ownerOf(state);
  return owner ? `${owner.uid}:${owner.gid}` : "not noted";
}

function octal(mode: number): string {
  return mode.toString(8).padStart(4, "0");
}
