/**
 * Whether exit code 137 was the kernel's kill for want of memory or someone's `kill -9`.
 *
 * The container's own OOMKilled flag speaks of its main process only. The engine's event is the proof; where events
 * do not come through, the counters inside the container are, which both versions of cgroups keep.
 */
import type { DockerContainer } from "./container.ts";

/** The event comes on its own way and may be a little later than the exit code, milliseconds. */
const EVENT_WAIT_MS = 250;
const EVENT_LOOK_MS = 10;

const COUNTER_SCRIPT = `
for file in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
  [ -r "$file" ] || continue
  while read -r key value; do
    [ "$key" = oom_kill ] && { printf '%s' "$value"; exit 0; }
  done <"$file"
done
`;

export class OutOfMemory {
  readonly #container: DockerContainer;
  readonly #limitBytes: number;
  readonly #startedAnewAt: number;
  #kills = 0;

  /**
   * @param limitBytes of the container, 0 when there is none
   * @param startedAnewAt when it was started again for want of memory (performance.now), whose events are gone
   */
  constructor(container: DockerContainer, limitBytes: number, startedAnewAt = Number.NEGATIVE_INFINITY) {
    this.#container = container;
    this.#limitBytes = limitBytes;
    this.#startedAnewAt = startedAnewAt;
  }

  /** @param startedAt of the command, as performance.now counts */
  async explain(exitCode: number, startedAt: number): Promise<string | null> {
    if (exitCode !== 137) return null;
    if (!(await this.#happened(startedAt))) return null;
    const { Memory = 0 } = this.#limitBytes ? {} : (await this.#container.inspect()).HostConfig;
    const bytes = this.#limitBytes || Memory;
    const limit = bytes ? `limit ${Math.round(bytes / 1024 / 1024)} MB` : "no limit of its own";
    return `killed (137), probably out of memory (${limit})`;
  }

  async #happened(startedAt: number): Promise<boolean> {
    if (this.#startedAnewAt >= startedAt) return true;
    const { watch } = this.#container;
    if (!watch.connected) return await this.#countKills();
    const deadline = performance.now() + EVENT_WAIT_MS;
    while (!watch.outOfMemorySince(startedAt)) {
      if (performance.now() > deadline) return false;
      await new Promise((resolve) => setTimeout(resolve, EVENT_LOOK_MS));
    }
    return true;
  }

  /** Whether the counter grew since it was last looked at. */
  async #countKills(): Promise<boolean> {
    try {
      const { stdout } = await this.#container.run(["/bin/sh", "-c", COUNTER_SCRIPT]);
      const before = this.#kills;
      this.#kills = Number(stdout) || 0;
      return this.#kills > before;
    } catch {
      // A container in which nothing can be run any more has no counter to show; its loss is told elsewhere.
      return false;
    }
  }
}
