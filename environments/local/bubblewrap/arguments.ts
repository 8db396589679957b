/** The words of bwrap's command line, and those that it reads once it runs. */
import { DOOR_PORT, HANDING_DOOR } from "../../egress/door.ts";
import { quoteAll } from "../../shell/quote.ts";
import { WORKER_MARKER } from "../../shell/worker.ts";
import { isSeen } from "./layout.ts";
import type { SandboxOptions } from "./sandbox.ts";
import { firstProgram } from "./supervisor.ts";

/** Own namespaces, no capabilities, no terminal. */
const ISOLATION = [
  "--unshare-user",
  "--disable-userns",
  "--unshare-pid",
  "--unshare-ipc",
  "--unshare-uts",
  "--unshare-cgroup-try",
  "--cap-drop",
  "ALL",
  "--new-session",
];

interface Arguments extends Pick<SandboxOptions, "workspace" | "network"> {
  readonly layout: readonly string[];
}

/** All options of bwrap. A filter is read from descriptor 4, what was made is told on 5. */
export function bwrapArguments(options: Arguments): string[] {
  return [...isolationArguments(options), ...layoutArguments(options)];
}

/** Nobody's secret, so they stand in its command line. */
function isolationArguments({ network }: Pick<Arguments, "network">): string[] {
  return [...ISOLATION, ...(network === "none" ? ["--unshare-net"] : [])];
}

export function layoutArguments({ layout, workspace }: Pick<Arguments, "layout" | "workspace">): string[] {
  return [
    ...layout,
    // Told with the rest: one that gets none of it, as this process has ended, must not be ended in its middle.
    "--die-with-parent",
    "--chdir",
    workspace,
    // bwrap's own, by which it is found; a program inside has the mark of its shell or none.
    "--unsetenv",
    WORKER_MARKER,
    "--seccomp",
    "4",
    "--json-status-fd",
    "5",
  ];
}

/**
 * With a door there are two layers: the outer makes the network namespace, in which the door is opened while the
 * sandbox is made. That happens outside of the sandbox, where commands can neither see nor end it.
 */
export function command(
  { network, owner, ...options }: SandboxOptions,
  program: (name: string) => string,
  inherited: readonly number[],
): string[] {
  const [bwrap, sh] = [program("bwrap"), program("sh")];
  // Found by its name it could be one that commands of another sandbox made, before the mounts are looked at.
  const shell = isSeen(sh) ? sh : "sh";
  const isolation = isolationArguments({ network });
  const sandbox = [bwrap, ...isolation, "--args", "3", "--", ...firstProgram(options, { inherited, shell })];
  if (typeof network === "string") return sandbox;
  const outer = [bwrap, "--unshare-user", "--unshare-net", "--cap-drop", "ALL", "--die-with-parent"];
  // Without it the kernel refuses a root in the inner layer, as it is the outer one's root.
  if (process.getuid?.() === 0 && owner === null) outer.push("--cap-add", "CAP_SETFCAP");
  const door = [process.execPath, "-e", HANDING_DOOR, "--", String(DOOR_PORT)];
  // Without its door the sandbox is nothing that was asked for.
  const script = `{ ${quoteAll(door)} </dev/null >&2 3<&- 4<&- 5>&- || kill -KILL $$; } &
unset NODE_CHANNEL_FD NODE_CHANNEL_SERIALIZATION_MODE
exec 6>&-
exec "$@"`;
  return [...outer, "--dev-bind", "/", "/", "--", sh, "-c", script, "sh", ...sandbox];
}
