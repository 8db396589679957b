/** A time limit that is fair to a process which was held up itself. */

/**
 * Calls `late` after this time. What has arrived by then is read before, also when nothing was read for the whole of it
 * because the machine was too busy.
 *
 * @returns takes it back; afterwards `late` is not called
 */
export function setDeadline(ms: number, late: () => void): () => void {
  let over = false;
  // Streams are looked at before the second round.
  const timer = setTimeout(() => setImmediate(() => setImmediate(() => over || late())), ms);
  return () => {
    over = true;
    clearTimeout(timer);
  };
}
