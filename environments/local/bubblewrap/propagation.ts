/**
 * Mounts that the machine makes later. bwrap leaves its own as followers of the machine's shared ones: a disk that is
 * mounted while a sandbox lives would appear in it with all that its user may write. Where the machine shares mounts, a
 * sandbox begins in a copy of them that follows nothing.
 */
import { readFileSync } from "node:fs";

/** CAP_SYS_ADMIN, as a bit of the effective set. */
const MAY_MOUNT = 1n << 21n;

/** Whether a mount of this process's is one that others are told by. */
function sharesMounts(): boolean {
  // Optional fields stand between the sixth and a lone hyphen.
  return /^(?:\S+ ){6}(?:\S+ )*?(?:shared|master):\d+ (?:\S+ )*?- /m.test(
    readFileSync("/proc/self/mountinfo", "utf8"),
  );
}

function mayMount(): boolean {
  const effective = /^CapEff:\s*([0-9a-f]+)$/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? "0";
  return (BigInt(`0x${effective}`) & MAY_MOUNT) !== 0n;
}

/**
 * What keeps bwrap from the machine's later mounts: the words before its command, none where nothing is shared.
 *
 * @param program finds one of the machine's programs
 * @param foreign whether bwrap runs as another user than this process's
 */
export function ownMounts(program: (name: string) => string, foreign: boolean): readonly string[] {
  if (!sharesMounts()) return [];
  const own = mayMount() && !foreign ? [] : ["--user", "--map-current-user"];
  return [program("unshare"), "--mount", "--propagation", "private", ...own, "--"];
}
