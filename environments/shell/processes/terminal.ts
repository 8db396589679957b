/**
 * Runs a background process on a terminal, through util-linux `script` or Python's pty module, whichever is there.
 *
 * The terminal ends with the command, also while children hold it: HUP is ignored in the command, so that what it
 * leaves in the background lives on, as it would without a terminal.
 */
import type { PtySize } from "../../base.ts";
import { quote } from "../quote.ts";
import { PROCESS_VARIABLE } from "./record.ts";

/** Succeeds where a terminal can be had, and sets `MOORAGE_TERMINAL`. */
export const TERMINAL_PROBE = `
case $(script --version 2>/dev/null </dev/null) in *util-linux*) MOORAGE_TERMINAL=script ;; *)
  if python3 -c 'import pty' 2>/dev/null; then MOORAGE_TERMINAL=python3; else MOORAGE_TERMINAL=; fi ;;
esac
export MOORAGE_TERMINAL
[ "$MOORAGE_TERMINAL" ]`;

/** The script that becomes the terminal. `script` hands its text to $SHELL, which may be no Bourne shell: ours it is. */
export function terminalText(folder: string, id: string, { rows, columns }: PtySize): string {
  const begin = quote(`${folder}/begin`);
  const marker = `${PROCESS_VARIABLE}=${id}`;
  return `exec <${quote(`${folder}/in`)} >>${quote(`${folder}/log`)} 2>&1
case \${TERM-} in "" | dumb) export TERM=xterm-256color ;; esac
export SHELL="$MOORAGE_SH"
kind=$MOORAGE_TERMINAL
unset MOORAGE_TERMINAL
case $kind in
script) exec script -qefc ${quote(`${marker} exec "$SHELL" ${begin}`)} /dev/null ;;
esac
exec python3 -c ${quote(PYTHON_TERMINAL)} ${rows} ${columns} ${marker} "$SHELL" ${begin}
`;
}

const PYTHON_TERMINAL = `
import fcntl, os, pty, select, struct, sys, termios
rows, columns, marker, argv = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
pid, master = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    name, value = marker.split("=", 1)
    os.environ[name] = value
    os.execvp(argv[0], argv)
os.set_blocking(master, False)
sources, pending, status = [master, 0], b"", None

def show():
    try:
        data = os.read(master, 65536)
    except BlockingIOError:
        return False
    except OSError:
        return None
    while data:
        data = data[os.write(1, data):]
    return True

while status is None:
    readable, writable, _ = select.select(sources, [master] if pending else [], [], 0.1)
    if master in readable and show() is None:
        status = os.waitpid(pid, 0)[1]
        break
    if 0 in readable and not pending:
        pending = os.read(0, 4096)
        if not pending:
            sources.remove(0)
            pending = b"\\x04"
    if writable:
        try:
            pending = pending[os.write(master, pending[:1024]):]
        except BlockingIOError:
            pass
        except OSError:
            pending = b""
    done, ended = os.waitpid(pid, os.WNOHANG)
    if done:
        status = ended
while show():
    pass
sys.exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
`;
