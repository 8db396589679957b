/** Control groups, without which no container starts: some machines boot without mounting them. */
import { execFile } from "node:child_process";
import { mkdir, readFile } from "node:fs/promises";
import { promisify } from "node:util";

const ROOT = "/sys/fs/cgroup";

/** Mounts the control groups that the kernel has where none are mounted. Needs root. @returns whether it did */
export async function mountCgroups(): Promise<boolean> {
  const mounts = await readFile("/proc/self/mounts", "utf8");
  if (/^\S+ \S+ cgroup2? /m.test(mounts)) return false;
  const mount = (...argv: string[]) => promisify(execFile)("mount", argv);
  const controllers = (await readFile("/proc/cgroups", "utf8"))
    .split("\n")
    .map((line) => line.split("\t"))
    // Columns: name, hierarchy, number of groups, enabled. Hierarchy 0 means that version 1 does not use it.
    .filter(([name = "", , , enabled]) => !name.startsWith("#") && enabled === "1")
    .map(([name = ""]) => name);
  if (controllers.length === 0) {
    await mount("-t", "cgroup2", "cgroup2", ROOT);
    return true;
  }
  await mount("-t", "tmpfs", "-o", "mode=0755", "cgroup", ROOT);
  for (const controller of controllers) {
    await mkdir(`${ROOT}/${controller}`);
    await mount("-t", "cgroup", "-o", controller, "cgroup", `${ROOT}/${controller}`);
  }
  return true;
}
