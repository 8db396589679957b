/** What a checkpoint knows of a path, and how that is kept. */
import { deflateRawSync, inflateRawSync } from "node:zlib";
import { z } from "zod";

/**
 * The state of one path at one moment. Paths have one character per byte: relative to the workspace, or absolute
 * outside of it. `kept` is something whose content is not in the store: it is neither changed nor removed. An owner
 * that was not noted is -1.
 */
export type PathState =
  | { readonly kind: "absent" }
  | {
      readonly kind: "file";
      readonly mode: number;
      readonly hash: string;
      readonly size: number;
      readonly modifiedAt: number;
      readonly uid: number;
      readonly gid: number;
    }
  | {
      readonly kind: "directory";
      readonly mode: number;
      readonly uid: number;
      readonly gid: number;
      /** Nobody could look into it: what is in it is not known. @default false */
      readonly closed?: true;
    }
  | { readonly kind: "symlink"; readonly target: string; readonly uid: number; readonly gid: number }
  | { readonly kind: "kept" };

export type States = ReadonlyMap<string, PathState>;

/** Something that a checkpoint does not hold, and why. */
export interface Skipped {
  readonly path: string;
  readonly reason: string;
}

const line = z.union([
  z.tuple([z.string(), z.literal("a")]),
  z.tuple([
    z.string(),
    z.literal("f"),
    z.number(),
    z.string(),
    z.number(),
    z.number(),
    z.number(),
    z.number(),
  ]),
  z.tuple([z.string(), z.literal("d"), z.number(), z.number().default(-1), z.number().default(-1)]),
  z.tuple([z.string(), z.literal("c"), z.number(), z.number(), z.number()]),
  z.tuple([z.string(), z.literal("l"), z.string(), z.number().default(-1), z.number().default(-1)]),
  z.tuple([z.string(), z.literal("k")]),
]);
type Line = z.output<typeof line>;

/** As compact text; equal states give equal text. */
export function encodeStates(states: States): string {
  return JSON.stringify([...states].map(toLine));
}

/** @throws when the text is not ours */
export function decodeStates(text: string): Map<string, PathState> {
  return new Map(z.array(line).parse(JSON.parse(text)).map(fromLine));
}

/** Packs a text for the index. */
export function squeeze(text: string): Buffer {
  return deflateRawSync(Buffer.from(text, "utf8"), { level: 1 });
}

/** @throws when the bytes are damaged */
export function unsqueeze(bytes: Uint8Array): string {
  return inflateRawSync(bytes).toString("utf8");
}

function toLine([path, state]: readonly [string, PathState]): Line {
  switch (state.kind) {
    case "absent":
      return [path, "a"];
    case "kept":
      return [path, "k"];
    case "directory":
      return [path, state.closed ? "c" : "d", state.mode, state.uid, state.gid];
    case "symlink":
      return [path, "l", state.target, state.uid, state.gid];
    case "file":
      return [path, "f", state.mode, state.hash, state.size, state.modifiedAt, state.uid, state.gid];
  }
}

function fromLine(entry: Line): [string, PathState] {
  const [path] = entry;
  switch (entry[1]) {
    case "a":
      return [path, { kind: "absent" }];
    case "k":
      return [path, { kind: "kept" }];
    case "d":
      return [path, { kind: "directory", mode: entry[2], uid: entry[3], gid: entry[4] }];
    case "c":
      return [path, { kind: "directory", mode: entry[2], uid: entry[3], gid: entry[4], closed: true }];
    case "l":
      return [path, { kind: "symlink", target: entry[2], uid: entry[3], gid: entry[4] }];
    case "f": {
      const [, , mode, hash, size, modifiedAt, uid, gid] = entry;
      return [path, { kind: "file", mode, hash, size, modifiedAt, uid, gid }];
    }
  }
}

/** Whether two states look the same in a folder; times and owners aside. */
export function sameState(a: PathState | undefined, b: PathState | undefined): boolean {
  if (a === undefined || b === undefined || a.kind !== b.kind) return false;
  if (a.kind === "file" && b.kind === "file") return a.hash === b.hash && a.mode === b.mode;
  if (a.kind === "directory" && b.kind === "directory") return a.mode === b.mode;
  if (a.kind === "symlink" && b.kind === "symlink") return a.target === b.target;
  return true;
}

/** Whose a path is; null where that was not noted. */
export function ownerOf(state: PathState | undefined): { readonly uid: number; readonly gid: number } | null {
  if (state === undefined || !("uid" in state) || state.uid < 0) return null;
  return { uid: state.uid, gid: state.gid };
}

/** Whether both states say whose the path is, and not the same. */
export function isOtherOwner(a: PathState | undefined, b: PathState | undefined): boolean {
  const [then, now] = [ownerOf(a), ownerOf(b)];
  return then !== null && now !== null && (then.uid !== now.uid || then.gid !== now.gid);
}
