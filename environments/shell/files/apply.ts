/** Sets of changes that happen whole or not at all. */
import { MoorageError, toMoorageError } from "../../../src/errors.ts";
import type { FileChange, WriteReceipt } from "../../base.ts";
import { renameFile } from "./change.ts";
import { type FileContext, runFile } from "./run.ts";
import { expectedText, temporaryName, writeWhole } from "./write.ts";

/** A change that was made, with the way back and the way to make it final. */
interface Step {
  readonly receipt?: WriteReceipt;
  readonly undo: () => Promise<void>;
  readonly settle?: () => Promise<void>;
}

/**
 * Makes the changes one after the other. The old state of each file stays beside it under a random name until all
 * are made: as a second link, so taking a change back brings the very same file back, with owner, mode and times.
 */
export async function applyChanges(
  context: FileContext,
  changes: readonly FileChange[],
  options: { readonly cwd?: string } = {},
): Promise<readonly WriteReceipt[]> {
  const steps: Step[] = [];
  try {
    for (const change of changes) steps.push(await makeChange(context, change, options.cwd));
  } catch (error) {
    throw await takeBack(steps, toMoorageError(error));
  }
  for (const step of steps) await step.settle?.();
  return steps.flatMap(({ receipt }) => (receipt ? [receipt] : []));
}

async function makeChange(context: FileContext, change: FileChange, cwd: string | undefined): Promise<Step> {
  switch (change.kind) {
    case "write":
      return makeWrite(context, change, cwd);
    case "remove":
      return makeRemoval(context, change, cwd);
    case "rename": {
      const { from, to } = change;
      const where = { ...(cwd !== undefined && { cwd }) };
      const made = await renameFile(context, from, to, where);
      return {
        undo: async () => {
          await renameFile(context, made.realPath, from, where);
          await prune(context, made.madeFolder, made.realPath);
        },
      };
    }
  }
}

async function makeWrite(
  context: FileContext,
  change: FileChange & { readonly kind: "write" },
  cwd: string | undefined,
): Promise<Step> {
  const backup = temporaryName();
  const options = { ...(cwd !== undefined && { cwd }), ...change.options };
  const { receipt, madeFolder } = await writeWhole(context, change.path, change.bytes, options, backup);
  const { realPath, created } = receipt;
  if (!created) {
    return {
      receipt,
      undo: () => restore(context, realPath, backup),
      settle: () => dropBackup(context, realPath, backup),
    };
  }
  return {
    receipt,
    undo: async () => {
      await runFile(context, {
        verb: "take back",
        path: realPath,
        cwd: undefined,
        command: "__moor_remove",
        args: [0, "-", "-"],
      });
      await prune(context, madeFolder, realPath);
    },
  };
}

async function makeRemoval(
  context: FileContext,
  change: FileChange & { readonly kind: "remove" },
  cwd: string | undefined,
): Promise<Step> {
  const backup = temporaryName();
  const output = await runFile(context, {
    verb: "remove",
    path: change.path,
    cwd,
    command: "__moor_remove",
    args: [0, backup, expectedText(change.expectedHash)],
  });
  const realPath = output.toString();
  return {
    undo: () => restore(context, realPath, backup),
    settle: () => dropBackup(context, realPath, backup),
  };
}

async function restore(context: FileContext, path: string, backup: string): Promise<void> {
  await runFile(context, {
    verb: "take back",
    path,
    cwd: undefined,
    command: "__moor_restore",
    args: [backup],
  });
}

async function dropBackup(context: FileContext, path: string, backup: string): Promise<void> {
  await runFile(context, { verb: "settle", path, cwd: undefined, command: "__moor_sweep", args: [backup] });
}

async function prune(context: FileContext, first: string, file: string): Promise<void> {
  if (first === "") return;
  const folder = file.slice(0, file.lastIndexOf("/"));
  await runFile(context, {
    verb: "take back",
    path: first,
    cwd: undefined,
    command: "__moor_prune",
    args: [folder],
  });
}

/** Undoes from the last to the first, going on when one cannot be undone, and tells that with the first error. */
async function takeBack(steps: readonly Step[], reason: MoorageError): Promise<MoorageError> {
  const left: string[] = [];
  for (const step of [...steps].reverse()) {
    await step.undo().catch((error: unknown) => left.push(toMoorageError(error).message));
  }
  if (left.length === 0) return reason;
  return new MoorageError(reason.code, `${reason.message}; changes before it stay: ${left.join("; ")}`, {
    suggestion: "Look at the named files before going on; the set of changes was made in part.",
    details: { ...reason.details, left },
    cause: reason,
  });
}
