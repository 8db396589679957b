// @ts-check
/** A thread that helps to copy files: it is sent the work, answers with what it did, and ends. */
import { parentPort } from "node:worker_threads";
import { copyPieces, STOP } from "./copy-files.mjs";

parentPort?.once("message", ({ work, place }) => {
  // Nobody waits for it any more.
  if (Atomics.compareExchange(work.shared, place, 0, 1) !== 0) return;
  /** @type {import("./copy-files.mjs").Copied} */
  const copied = { records: [], unreadable: [] };
  try {
    for (const _ of copyPieces(work, copied));
    parentPort?.postMessage({ records: copied.records.join(work.separator), unreadable: copied.unreadable });
  } catch (error) {
    Atomics.store(work.shared, STOP, 1);
    parentPort?.postMessage({ failure: error instanceof Error ? error.message : String(error) });
  }
});
