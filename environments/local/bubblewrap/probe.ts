/** Whether sandboxes can be had on this machine, asked of bwrap itself. */
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { limits } from "../../../src/limits.ts";
import type { Health } from "../../base.ts";
import { hostProgram } from "../../host-programs.ts";
import { ownMounts } from "./propagation.ts";

const PROBE = ["--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/"];

/**
 * Starts a sandbox that does nothing, the way a real one is started.
 *
 * @param exposed folders whose programs are not to be run
 */
export async function probeBubblewrap(exposed: readonly string[] = []): Promise<Health> {
  if (process.platform !== "linux") {
    return bad(`bubblewrap needs Linux, and this is ${process.platform}`, "Use a container: docker:IMAGE.");
  }
  try {
    // It also needs util-linux, whose setsid starts shells in it.
    const [bwrap = null, ...rest] = ["bwrap", "setsid", "true"].map((name) => hostProgram(name, exposed));
    if (bwrap === null) return bad("bwrap is not installed", "Install the package bubblewrap.");
    const [setsid = null, nothing = null] = rest;
    if (setsid === null || nothing === null)
      return bad("setsid or true is not installed", "Install the packages util-linux and coreutils.");
    const unshare = hostProgram("unshare", exposed);
    if (unshare === null) return bad("unshare is not installed", "Install the package util-linux.");
    const own = [bwrap, ...PROBE, "--proc", "/proc", "--dev", "/dev", "--", setsid, "-w", nothing];
    const [file = "", ...argv] = [...ownMounts(() => unshare, false), ...own];
    await promisify(execFile)(file, argv, { timeout: limits.probeTimeoutMs, cwd: "/" });
    return { healthy: true, detail: "sandboxes can be made" };
  } catch (error) {
    const stderr = error instanceof Error && "stderr" in error ? String(error.stderr).trim() : "";
    const reason = stderr || (error instanceof Error ? error.message : String(error));
    if (/Unknown option/.test(reason))
      return bad(`bwrap is too old: ${reason}`, "Install bubblewrap 0.8 or newer.");
    return bad(
      `bwrap cannot make a sandbox: ${reason}`,
      "Allow unprivileged user namespaces (sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns).",
    );
  }
}

function bad(reason: string, suggestion: string): Health {
  return { healthy: false, code: "ENVIRONMENT_UNAVAILABLE", reason, suggestion };
}
