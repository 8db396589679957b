/**
 * What runs in a sandbox for us. Its first program starts the first shell, and a login shell beside it, by itself and at
 * once; a supervisor reads requests for more from its standard input, a line each, and tells of shells by its output.
 */

import type { ShellKind } from "../../shell/phrases.ts";
import { quote, quoteAll } from "../../shell/quote.ts";
import { loginScript } from "../../shell/script.ts";
import type { StreamRequest } from "../../shell/stream.ts";
import { CHANNEL } from "./layout.ts";
import type { PipeSet } from "./pipes.ts";

/**
 * Variable that the last of bwrap's options sets. They come through a pipe, which ends early when this process is killed
 * while it writes them: what was asked for up to there could be a sandbox too, with less in force.
 */
export const WHOLE = "MOORAGE_WHOLE";

/** What the login shell writes after its variables. */
export const LOGIN_END = "\\000";
/** Name of the pipe, in the channel, of the login shell's variables. */
export const LOGIN_PIPE = "login";

export interface SupervisorOptions {
  /** Whether bash is found by its name inside. */
  readonly bash: boolean;
  /** Login shell whose variables are wanted. @default none */
  readonly login: ShellKind | "auto" | null;
}

/** The steps of a request, by what it asks for in `__moor_v` and its word in `__moor_w`. */
const answer = (start: string) => `__moor_f="${CHANNEL}/$__moor_w/run"
case $__moor_v in
open) ${start} ;;
kill) kill -KILL "$__moor_w" ;;
esac`;

/**
 * bash starts a program as a job, which has a group and all signals of its own; in another shell `&` would have it
 * ignore SIGINT for good, and two programs more stand between. It gets its first request as an argument.
 */
const BASH_SUPERVISOR = `set -m; SHLVL=$((SHLVL - 1))
__moor_v=\${1%% *} __moor_w=\${1#* }; shift
while
${answer('( . "$__moor_f" ) </dev/null &')}
IFS=' ' read -r __moor_v __moor_w; do :; done 2>/dev/null`;

const SH_SUPERVISOR = `while IFS=' ' read -r __moor_v __moor_w <&4; do
${answer('setsid -f sh "$__moor_f" </dev/null 4<&-')}
done 2>/dev/null`;

/**
 * The first program. It is the smallest shell, and its parts are those of a pipeline, so that none of them waits for
 * another or ignores a signal: the login shell, the first shell, and the supervisor, which takes a bash only once there
 * is a second request. When that ends, by the end of its input or by a signal, all ends.
 *
 * A login shell writes its variables to a pipe of its own, with a NUL at the end. Where a profile ends the shell, another
 * who hears of its end by the pipeline writes that.
 */
export function firstProgram(
  { bash, login }: SupervisorOptions,
  { inherited, shell }: { readonly inherited: readonly number[]; readonly shell: string },
): string[] {
  const read =
    login === null
      ? ""
      : ` | (
exec 3>&- 4<&- 6>"${CHANNEL}/${LOGIN_PIPE}" 7>&1 >/dev/null 2>&1
${loginScript(login, 6, { end: LOGIN_END, last: true })}
) | (
exec 3>&- 4<&- >/dev/null 2>&1
read -r __moor_l || printf '${LOGIN_END}' >"${CHANNEL}/${LOGIN_PIPE}"
)`;
  const next = bash
    ? `IFS= read -r __moor_l <&4 && bash --noprofile --norc -c ${quote(BASH_SUPERVISOR)} bash "$__moor_l" <&4 >&3 4<&-`
    : SH_SUPERVISOR;
  // What leads nowhere need not be seen; other shells than bash know no number above 9.
  const closed = inherited.filter((descriptor) => descriptor < 10);
  const script = `[ "\${${WHOLE}-}" ] || exit; unset ${WHOLE}
exec 3>&1 4<&0 </dev/null ${closed.map((descriptor) => `${descriptor}>&-`).join(" ")}
echo ready
IFS=' ' read -r __moor_v __moor_w <&4 || exit
(
exec 4<&-
. "${CHANNEL}/$__moor_w/run"
)${read} | (
${next}
kill -KILL $$
)`;
  return [shell, "-c", script];
}

/** What starts one program. Descriptor 3 tells the host. `read` from its own stat gives the subshell's number. */
export function runScript(
  { name }: PipeSet,
  { argv, env }: Pick<StreamRequest, "argv" | "env">,
  workspace: string,
): string {
  const folder = `${CHANNEL}/${name}`;
  const exports = Object.entries(env).map(([variable, value]) => `export ${variable}=${quote(value)}`);
  return `exec 4<"${folder}/in" 5>"${folder}/out" 6>"${folder}/err"
(
  IFS=' ' read -r __moor_p __moor_r </proc/self/stat
  echo "opened ${name} $__moor_p" >&3
  exec <&4 >&5 2>&6 3>&- 4<&- 5>&- 6>&-
${exports.join("\n")}
cd ${quote(workspace)}
exec setsid ${quoteAll(argv)}
)
__moor_c=$?
exec 4<&- 5>&- 6>&-
echo "exit ${name} $__moor_c" >&3
`;
}
