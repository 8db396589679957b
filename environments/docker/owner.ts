/**
 * Who owns a container, written into its labels so that anyone can later tell whether that process still lives.
 *
 * An owner is dead when this machine, in the same boot and the same process namespace, has no process of that
 * number with that start time; or when this machine was booted again since. What another machine or namespace
 * owns cannot be judged from here and is left alone.
 */
import { createHash, randomBytes } from "node:crypto";
import { readFileSync, readlinkSync } from "node:fs";
import { hostname } from "node:os";

export const LABELS = {
  owner: "moorage.owner",
  session: "moorage.session",
  environment: "moorage.environment",
  createdAt: "moorage.created-at",
  keep: "moorage.keep",
  role: "moorage.role",
} as const;

/** Role of the companion that is another container's way to the proxy. */
export const DOOR_ROLE = "door";

export type OwnerState = "self" | "live" | "dead" | "unknown";

/** What liveness is judged by. */
export interface ProcessTable {
  /** Of machine and host name, so that cloned machines differ. */
  readonly machine: string;
  readonly bootId: string;
  /** The namespace in which `pid` counts. */
  readonly namespace: string;
  readonly pid: number;
  /** Start time of a process in ticks since boot; `gone` when there is none, null when it cannot be told. */
  startTime(pid: number): string | "gone" | null;
}

/** The table of this machine. */
export function thisProcessTable(): ProcessTable {
  return {
    machine: createHash("sha256")
      .update(`${readText("/etc/machine-id")}\n${hostname()}`)
      .digest("hex")
      .slice(0, 12),
    bootId: readText("/proc/sys/kernel/random/boot_id").replaceAll("-", "").slice(0, 12) || "none",
    namespace: readNamespace(),
    pid: process.pid,
    startTime(pid) {
      try {
        process.kill(pid, 0);
      } catch (error) {
        // Not being allowed to signal it proves that it is there.
        if (error instanceof Error && "code" in error && error.code === "ESRCH") return "gone";
      }
      // The name in parentheses may hold anything, so fields are counted from its end; the 22nd is the start time.
      const stat = readText(`/proc/${pid}/stat`);
      const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      if (fields[0] === "Z" || fields[0] === "X") return "gone";
      return fields[19] ?? null;
    },
  };
}

/** The label value of the present process. */
export function ownerLabel(table: ProcessTable = thisProcessTable()): string {
  const start = table.startTime(table.pid) ?? "0";
  return ["1", table.machine, table.bootId, table.namespace, table.pid, start].join(":");
}

/** A token of one orchestrator, beside the owner: two in one process differ. */
export function newSessionToken(): string {
  return randomBytes(8).toString("hex");
}

/**
 * Tells whether the owner of a label is alive, as far as can be told from here.
 *
 * @param running whether its container runs: a boot ends all of them, so a running one is some other machine's
 */
export function judgeOwner(
  label: string,
  running: boolean,
  table: ProcessTable = thisProcessTable(),
): OwnerState {
  const [version, machine, bootId, namespace, pidText, start, ...rest] = label.split(":");
  const pid = Number(pidText);
  if (version !== "1" || !start || rest.length > 0 || !Number.isSafeInteger(pid) || pid <= 0)
    return "unknown";
  if (machine !== table.machine) return "unknown";
  if (bootId !== table.bootId) return running ? "unknown" : "dead";
  if (namespace !== table.namespace) return "unknown";
  const present = table.startTime(pid);
  if (present === "gone") return "dead";
  if (present !== null && start !== "0" && present !== start) return "dead";
  return pid === table.pid ? "self" : "live";
}

function readText(path: string): string {
  try {
    return readFileSync(path, "utf8").trim();
  } catch {
    // Systems without /proc have fewer facts to judge by; the callers treat an empty one as unknown.
    return "";
  }
}

function readNamespace(): string {
  try {
    return /\d+/.exec(readlinkSync("/proc/self/ns/pid"))?.[0] ?? "none";
  } catch {
    // As above.
    return "none";
  }
}
