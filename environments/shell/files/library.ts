import { CHANGE_FUNCTIONS } from "./library-change.ts";
import { READ_FUNCTIONS } from "./library-read.ts";
import { STAT_FUNCTIONS } from "./library-stat.ts";
import { WRITE_FUNCTIONS } from "./library-write.ts";

/** What the functions of the other parts share. */
const SHARED_FUNCTIONS = String.raw`
__moor_newline='
'
__moor_stat_format='%a %f %s %u %g %.3Y %i' __moor_stat_name=%n
if stat -c %f / >/dev/null 2>&1; then __moor_stat_option=-c
elif stat -f %Xp / >/dev/null 2>&1; then __moor_stat_option=-f __moor_stat_format='%Mp%Lp %Xp %z %u %g %Fm %i' __moor_stat_name=%N
else __moor_stat_option=
fi

__moor_fail() { printf 'moorage-file %s %s\n' "$1" "$2" >&2; exit 90; }

# Prints the status line of ./$name, or of its target with -L.
__moor_stat() {
  [ -n "$__moor_stat_option" ] || __moor_fail NOSTAT
  stat "$@" "$__moor_stat_option" "$__moor_stat_format" "./$name"
}

# Sets link to the target of the link $1, whatever bytes it holds.
__moor_readlink() {
  link=$(readlink "$1" && printf x) || __moor_fail PERM
  link=\${link%x} link=\${link%"$__moor_newline"}
}

# Enters the deepest folder that exists above the absolute path $1 and sets here (that folder, by physical path),
# name (. for the folder itself), real (the whole path, links resolved) and rest (what follows name because name is
# missing). $2 tells whether a link in the last place is followed too.
__moor_enter() {
  LC_ALL=C; export LC_ALL; unset CDPATH
  path=$1 hops=0 rest=
  while :; do
    while :; do case $path in ?*/) path=\${path%/} ;; *) break ;; esac; done
    name=\${path##*/} dir=\${path%/*}
    case $name in
      ''|.|..) dir=$path ;;
    esac
    if cd -P "\${dir:-/}" >/dev/null 2>&1; then
      case $PWD in /*) ;; *) __moor_fail UNREACHABLE ;; esac
      here=$PWD
      while :; do case $here in //*) here=\${here#/} ;; *) break ;; esac; done
    else
      if [ "$dir" = "$path" ]; then
        path=\${path%/*} rest=/$name$rest
      else
        path=$dir rest=/$name$rest
      fi
      continue
    fi
    if [ "$dir" = "$path" ]; then
      real=$here name=.
      [ -z "$rest" ] || { real=\${real%/}$rest; }
      break
    fi
    if [ -L "./$name" ] && { [ "$2" = follow ] || [ -n "$rest" ]; }; then
      case $here in
        /proc/*/fd|/proc/*/map_files) __moor_fail SPECIAL ;;
      esac
      hops=$((hops + 1))
      [ "$hops" -le 40 ] || __moor_fail LOOP
      __moor_readlink "./$name"
      case $link in
        /*) path=$link ;;
        *) path=\${here%/}/$link ;;
      esac
      continue
    fi
    real=\${here%/}/$name
    if [ -n "$rest" ]; then
      if [ -d "./$name" ]; then __moor_fail PERM "$real"; fi
      if [ -e "./$name" ]; then __moor_fail NOTDIR "$real"; fi
      real=$real$rest
      case $rest/ in */../*) __moor_fail DOTS "$real" ;; esac
    fi
    break
  done
}

# Enters the folder of an existing regular file that may be read.
__moor_file() {
  __moor_enter "$1" follow
  [ -z "$rest" ] || __moor_fail MISSING
  __moor_regular
  [ -f "./$name" ] || __moor_fail MISSING
  [ -r "./$name" ] || __moor_fail PERM
}

# Fails when ./$name is there and is not a regular file. The kernel's endless or memory-mapped files pass the test
# for a regular file and would block or never end.
__moor_regular() {
  pseudo=
  case $real in
    /proc/kmsg|/proc/kcore|/proc/kpage*|/proc/*/mem|/proc/*/pagemap|/proc/*/fd/*|/proc/*/map_files/*|*/trace_pipe)
      __moor_fail SPECIAL ;;
    /proc/*|/sys/*) pseudo=1 ;;
  esac
  if [ -f "./$name" ]; then return; fi
  if [ -d "./$name" ]; then __moor_fail DIR; fi
  if [ -e "./$name" ]; then __moor_fail SPECIAL; fi
}

# Prints what printf makes of the format before and the arguments, then piece, then what printf makes of $1. For bash, which
# writes line by line what a text has beyond whole blocks: those go first.
__moor_print_piece() {
  tail=$1
  shift
  if [ "\${#piece}" -gt 4096 ]; then
    printf "$before" "$@"
    set --
    before=
    __moor_print_blocks
  fi
  printf "$before%s$tail" "$@" "$piece"
}
if [ -n "\${BASH_VERSION-}" ]; then
  # Grammar that other shells do not know stays inside a word.
  eval '__moor_print_blocks() {
    blocks=$((\${#piece} / 4096 * 4096))
    printf %s "\${piece:0:$blocks}"
    piece=\${piece:$blocks}
  }'
fi

# Copies up to 64 KiB of stdin to stdout by bash alone, NUL bytes too; false when there may be more. The first piece
# follows what printf makes of FORMAT and its arguments, the last one is followed by END, since each write is a packet:
# __moor_copy_small END FORMAT [ARGUMENT ...]
__moor_copy_small() {
  after=$1 before=$2 left=65536 nuls=128
  shift 2
  while IFS= read -r -d '' -n "$left" piece; do
    if [ "\${#piece}" -eq "$left" ]; then __moor_print_piece "" "$@"; return 1; fi
    left=$((left - \${#piece} - 1)) nuls=$((nuls - 1))
    __moor_print_piece '\000' "$@"
    before=
    set --
    if [ "$left" -le 0 ] || [ "$nuls" -le 0 ]; then return 1; fi
  done
  __moor_print_piece "$after" "$@"
}

# Prints the SHA-256 of stdin in hex and possibly more after a blank.
__moor_hash() {
  if command -v sha256sum >/dev/null 2>&1; then sha256sum
  elif command -v shasum >/dev/null 2>&1; then shasum -a 256
  elif command -v sha256 >/dev/null 2>&1; then sha256 -q
  elif command -v openssl >/dev/null 2>&1; then openssl dgst -sha256 -r
  else return 1
  fi
}
`;

/**
 * The shell functions under `files`, in POSIX sh, for bash, dash and BusyBox sh alike.
 *
 * Each function runs in a subshell of its own, so it changes folder and locale freely. It first enters the folder
 * that holds the file, by physical path, and from then on names the file as `./name`: a name that begins with `-`
 * is no option, and a folder that is renamed or replaced by a link after that moment changes nothing. Failures go
 * to stderr as `moorage-file CODE detail` with exit code 90. External programs are what costs time here, so the
 * functions use as few as they can, and `exec` the last one to save its fork.
 */
export const FILE_LIBRARY: string = [
  SHARED_FUNCTIONS,
  READ_FUNCTIONS,
  WRITE_FUNCTIONS,
  STAT_FUNCTIONS,
  CHANGE_FUNCTIONS,
]
  .join("")
  // A template would take the shell's own `${` for its own.
  .replaceAll("\\${", "${");
