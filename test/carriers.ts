import { readdir, readFile } from "node:fs/promises";

/** Processes of this machine whose variables held the text when they began. */
export async function carriers(text: string): Promise<readonly number[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const found = pids.map(async (pid) => {
    const environ = await readFile(`/proc/${pid}/environ`, "utf8").catch(
      () => "it has ended, or is not ours",
    );
    return environ.includes(text) ? [Number(pid)] : [];
  });
  return (await Promise.all(found)).flat();
}

/** The words of a process, separated by blanks; empty when it has ended. */
export async function commandLine(pid: number): Promise<string> {
  return (await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")).replaceAll("\0", " ");
}
