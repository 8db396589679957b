/**
 * The shell functions under `files`, in POSIX sh, for bash, dash and BusyBox sh alike.
 *
 * Each function runs in a subshell of its own, so it changes folder and locale freely. It first enters the folder
 * that holds the file, by physical path, and from then on names the file as `./name`: a name that begins with `-`
 * is no option, and a folder that is renamed or replaced by a link after that moment changes nothing. Failures go
 * to stderr as `moorage-file CODE detail` with exit code 90. External programs are what costs time here, so the
 * functions use as few as they can, and `exec` the last one to save its fork.
 */
export const FILE_LIBRARY: string = String.raw`
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

# Fails unless the file of status line $1 has at most $2 bytes.
__moor_fits() {
  max=$2 IFS=' '
  set -- $1
  [ "$3" -le "$max" ] || __moor_fail BIG "$3"
}

# Prints the rest of stdin; kernel files have no size, so theirs is bounded by $1.
__moor_rest() {
  if [ -n "$pseudo" ]; then head -c "$(($1 + 1))"; else cat; fi
}

# __moor_read PATH MAX STATUS: real path, NUL, then T content |status, or H status newline content. Without STATUS (-)
# a small file costs bash no program at all and other shells one; MAX + 1 bytes may come then.
__moor_read() {
  __moor_file "$1"
  if [ -n "\${BASH_VERSION-}" ]; then
    end='|'
    [ "$3" = - ] || end=
    { __moor_copy_small "$end" '%s\000T' "$real" || {
      status=$(__moor_stat -L) || exit
      __moor_fits "$status" "$2"
      __moor_rest "$2" && printf %s "$end"
    }; } <"./$name" || exit
    [ "$3" != - ] || return 0
    [ -n "$__moor_stat_option" ] || __moor_fail NOSTAT
    exec stat -L "$__moor_stat_option" "|$__moor_stat_format" "./$name"
  fi
  if [ "$3" = - ]; then
    printf '%s\000H\n' "$real"
    [ -s "./$name" ] || [ -n "$pseudo" ] || exit 0
    exec head -c "$(($2 + 1))" "./$name"
  fi
  status=$(__moor_stat -L) || exit
  __moor_fits "$status" "$2"
  printf '%s\000H%s\n' "$real" "$status"
  if [ -n "$pseudo" ]; then exec head -c "$(($2 + 1))" "./$name"; fi
  exec cat "./$name"
}

# __moor_range PATH OFFSET MAX: real path, NUL, status, offset of the first byte printed, newline, bytes that hold
# the range and up to 64 KiB around it. Whole blocks let dd seek where tail -c would read its way there.
__moor_range() {
  __moor_file "$1"
  offset=$2 max=$3 IFS=' '
  status=$(__moor_stat -L) || exit
  set -- $status
  size=$3
  if [ "$offset" -lt 0 ]; then offset=$((size + offset)); fi
  if [ "$offset" -lt 0 ]; then offset=0; fi
  printf '%s\000%s %s' "$real" "$status" "$offset"
  if [ -n "$pseudo" ]; then
    printf ' %s\n' "$offset"
    tail -c "+$((offset + 1))" "./$name" | head -c "$max"
    exit
  fi
  if [ "$offset" -eq 0 ] && [ "$max" -ge "$size" ]; then
    printf ' 0\n'
    exec cat "./$name"
  fi
  if [ "$max" -gt "$((size - offset))" ]; then max=$((size - offset)); fi
  skip=$((offset / 65536))
  printf ' %s\n' "$((skip * 65536))"
  [ "$max" -gt 0 ] || exit 0
  exec dd if="./$name" bs=65536 skip="$skip" count="$(((offset + max + 65535) / 65536 - skip))" 2>/dev/null
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

# Prints ./$name from its 64 KiB block $1 on; dd seeks there.
__moor_blocks() { dd if="./$name" bs=65536 skip="$1" 2>/dev/null; }

# Whether ./$name begins with text of no encoding: a NUL in its first 4 KiB, and no mark of UTF-16.
__moor_binary() {
  case $(head -c 2 "./$name" | od -An -tx1) in *"ff fe"*|*"fe ff"*) return 1 ;; esac
  [ "$(head -c 4096 "./$name" | tr -d '\000' | wc -c)" -lt 4096 ]
}

# __moor_lines PATH FIRST LIMIT MAX HASHMAX: real path, NUL, status, line count, first line, hash or -, newline,
# lines, cut after MAX + 1 bytes. Lines of a binary file too large for a hash are not counted: that takes long. No line
# is ever held in memory by the programs used, so length does not matter.
__moor_lines() {
  __moor_file "$1"
  first=$2 limit=$3 max=$4 hash_max=$5 IFS=' '
  status=$(__moor_stat -L) || exit
  set -- $status
  size=$3
  if [ "$size" -gt "$hash_max" ] && [ "$first" -ge 0 ] && __moor_binary; then __moor_fail BINARY; fi
  total=$(wc -l <"./$name") hash=-
  if [ "$size" -gt 0 ]; then
    last=$(dd if="./$name" bs=1 skip="$((size - 1))" count=1 2>/dev/null; printf x)
    [ "$last" = "\${__moor_newline}x" ] || total=$((total + 1))
  fi
  if [ "$size" -le "$hash_max" ]; then
    hash=$(__moor_hash <"./$name") || hash=-
    hash=\${hash%% *}
  fi
  back=0
  if [ "$first" -lt 0 ]; then back=$((0 - first)) first=$((total + first + 1)); fi
  if [ "$first" -lt 1 ]; then first=1; fi
  printf '%s\000%s %s %s %s\n' "$real" "$status" "$((total))" "$first" "$hash"
  # Lines that lie wholly in the last blocks are taken from there, without reading the file a second time.
  skip=$((size / 65536 - 3))
  if [ "$back" -gt 0 ] && [ "$skip" -gt 0 ] && [ "$(__moor_blocks "$skip" | wc -l)" -gt "$back" ]; then
    __moor_blocks "$skip" | tail -n "$back" | head -n "$limit" | head -c "$((max + 1))"
    exit
  fi
  tail -n "+$first" "./$name" | head -n "$limit" | head -c "$((max + 1))"
}

# __moor_write PATH TEMPORARY MODE EXPECTED PREVIOUS BACKUP SIZE [FORMAT TEXT]: makes a whole new file beside the old one
# and renames it. MODE (- for none) is for a new file; EXPECTED is a SHA-256, absent or -; the old content is printed
# when it has at most PREVIOUS bytes; BACKUP (- for none) names a second link to it. The content is what printf makes
# of FORMAT and TEXT, or else SIZE bytes of stdin. Prints real path, created, first folder made, each with a NUL, then the old
# content and = when that is all of it, or - when it is not wanted, not there or too large.
__moor_write() {
  __moor_enter "$1" follow
  made=
  if [ -n "$rest" ]; then
    made=\${here%/}/$name
    [ -w . ] || __moor_fail PERM
    mkdir -p "\${real%/*}" && cd -P "\${real%/*}" || exit
    name=\${real##*/} rest=
  fi
  __moor_regular
  [ -w . ] || __moor_fail FOLDER
  if [ -f "./$name" ]; then
    [ "$4" != absent ] || __moor_fail PRESENT
    [ -w "./$name" ] || __moor_fail PERM
    __moor_previous "$5" '%s\0000\000%s\000' "$real" "$made"
    umask 077
  else
    case $4 in -|absent) ;; *) __moor_fail GONE ;; esac
    printf '%s\0001\000%s\000-' "$real" "$made"
    [ "$3" = - ] || umask 077
  fi
  set -C
  if [ "$#" -ge 9 ]; then
    printf "$8" "$9" >"./$2" || {
      [ ! -e "./$2" ] || __moor_drop "$2" FULL
      exit 1
    }
  else
    cat >"./$2" || __moor_drop "$2"
    [ "$(($(wc -c <"./$2")))" -eq "$7" ] || __moor_drop "$2" SHORT
  fi
  if [ "$3$4$6" = --- ] && __moor_replace "$PWD" "$2" "$name"; then return; fi
  if [ -f "./$name" ]; then
    __moor_resemble "$2"
  elif [ "$3" != - ]; then
    chmod "$3" "./$2" || __moor_drop "$2"
  fi
  if [ "$4" = absent ]; then
    if ln "./$2" "./$name" 2>/dev/null; then exec rm -f "./$2"; fi
    [ ! -e "./$name" ] && [ ! -L "./$name" ] || __moor_drop "$2" PRESENT
  fi
  if [ "$6" != - ] && [ -f "./$name" ]; then
    ln "./$name" "./$6" 2>/dev/null || cp -p "./$name" "./$6" || __moor_drop "$2"
  fi
  case $4 in
    -|absent) ;;
    *)
      hash=$(__moor_hash <"./$name") || __moor_drop "$2" NOHASH
      if [ "\${hash%% *}" != "$4" ]; then
        [ "$6" = - ] || rm -f "./$6"
        __moor_drop "$2" CHANGED
      fi ;;
  esac
  exec mv -f "./$2" "./$name"
}

# __moor_previous MAX FORMAT [ARGUMENT ...]: prints what printf makes of FORMAT and its arguments, then the content of
# ./$name and =, or - when it has more than MAX bytes or cannot be read.
__moor_previous() {
  limit=$1 format=$2 IFS=' '
  shift 2
  if [ "$limit" -eq 0 ] || [ ! -r "./$name" ]; then printf "$format-" "$@"; return; fi
  if [ -n "\${BASH_VERSION-}" ]; then
    { __moor_copy_small = "$format" "$@" || {
      status=$(__moor_stat) || exit
      set -- $status
      if [ "$3" -gt "$limit" ]; then printf -; return; fi
      cat && printf =
    }; } <"./$name" || exit
  else
    printf "$format" "$@"
    status=$(__moor_stat) || exit
    set -- $status
    if [ "$3" -gt "$limit" ]; then printf -; return; fi
    cat "./$name" && printf = || exit
  fi
}

# Gives the new file $1 the mode, owner and group of ./$name.
__moor_resemble() {
  if [ -n "\${BASH_VERSION-}" ] && [ -O "./$name" ] && [ -G "./$name" ] && [ -G "./$1" ]; then
    if chmod "--reference=./$name" "./$1" 2>/dev/null; then return; fi
  fi
  status=$(__moor_stat) || __moor_drop "$1"
  temporary=$1 IFS=' '
  set -- $status
  if [ ! -O "./$name" ] || [ ! -G "./$name" ] || [ ! -G "./$temporary" ]; then
    chown "$4:$5" "./$temporary" 2>/dev/null || __moor_drop "$temporary" OWNER
  fi
  chmod "$1" "./$temporary" || __moor_drop "$temporary"
}

# Removes the temporary file $1 after a failure, which is $2 or was told by the failed program.
__moor_drop() {
  rm -f "./$1"
  [ -z "\${2-}" ] || __moor_fail "$2"
  exit 1
}

# __moor_sweep PATH NAME: removes NAME beside PATH after a write that could not clean up.
__moor_sweep() {
  __moor_enter "$1" follow
  [ -n "$rest" ] || exec rm -f "./$2"
}

# __moor_restore PATH BACKUP: puts BACKUP, beside PATH, in its place.
__moor_restore() {
  __moor_enter "$1" -
  [ -z "$rest" ] || __moor_fail MISSING
  exec mv -f "./$2" "./$name"
}

# __moor_status PATH FOLLOW: real path, NUL, status newline, target of a link.
__moor_status() {
  __moor_enter "$1" "$2"
  [ -z "$rest" ] || __moor_fail MISSING
  if [ ! -e "./$name" ] && [ ! -L "./$name" ]; then __moor_fail MISSING; fi
  printf '%s\000' "$real"
  __moor_stat || exit
  if [ -L "./$name" ]; then __moor_readlink "./$name"; printf %s "$link"; fi
}

# __moor_list PATH: names, each with a NUL, an empty one; then name and target of links; an empty one; status lines
# with names. Entries that go away meanwhile lack their status line.
__moor_list() {
  __moor_enter "$1" follow
  [ -z "$rest" ] || __moor_fail MISSING
  if [ ! -e "./$name" ]; then __moor_fail MISSING; fi
  [ -d "./$name" ] || __moor_fail NOTDIR
  [ -r "./$name" ] && cd -P "./$name" || __moor_fail PERM
  [ -n "$__moor_stat_option" ] || __moor_fail NOSTAT
  __moor_entries
  printf '\000'
  for entry in ./* ./.[!.]* ./..?*; do
    if [ -L "$entry" ]; then __moor_readlink "$entry"; printf '%s\000%s\000' "$entry" "$link"; fi
  done
  printf '\000'
  __moor_entries | xargs -0 stat "$__moor_stat_option" "$__moor_stat_format $__moor_stat_name" 2>/dev/null
  exit 0
}

# Prints the entries of the folder, each with a NUL; a pattern that matches nothing stands for itself and is left out.
__moor_entries() {
  for entry in ./* ./.[!.]* ./..?*; do
    if [ -e "$entry" ] || [ -L "$entry" ]; then printf '%s\000' "$entry"; fi
  done
}

# __moor_real PATH FOLLOW: real path of what is or would be there.
__moor_real() { __moor_enter "$1" "$2"; printf %s "$real"; }

# __moor_remove PATH RECURSIVE BACKUP EXPECTED: removes, or renames to BACKUP (- for none) beside it.
__moor_remove() {
  __moor_enter "$1" -
  if [ -n "$rest" ] || { [ ! -e "./$name" ] && [ ! -L "./$name" ]; }; then __moor_fail MISSING; fi
  [ "$name" != . ] || __moor_fail ROOT
  printf %s "$real"
  [ -w . ] || __moor_fail PERM
  if [ "$4" != - ]; then
    [ -f "./$name" ] || __moor_fail CHANGED
    hash=$(__moor_hash <"./$name") || __moor_fail NOHASH
    [ "\${hash%% *}" = "$4" ] || __moor_fail CHANGED
  fi
  if [ "$3" != - ]; then
    if [ -d "./$name" ] && [ ! -L "./$name" ]; then __moor_fail DIR; fi
    exec mv -f "./$name" "./$3"
  fi
  if [ -d "./$name" ] && [ ! -L "./$name" ]; then
    [ "$2" = 1 ] && exec rm -rf "./$name"
    rmdir "./$name" 2>/dev/null || {
      set -- "./$name"/* "./$name"/.[!.]* "./$name"/..?*
      for entry; do
        if [ -e "$entry" ] || [ -L "$entry" ]; then __moor_fail NOTEMPTY; fi
      done
      exec rmdir "./$name"
    }
    exit 0
  fi
  exec rm -f "./$name"
}

# __moor_rename FROM TO REPLACE: prints the new real path and, after a NUL, the first folder made.
__moor_rename() {
  __moor_enter "$1" -
  if [ -n "$rest" ] || { [ ! -e "./$name" ] && [ ! -L "./$name" ]; }; then __moor_fail MISSING; fi
  [ "$name" != . ] || __moor_fail ROOT
  from=$real made=
  __moor_enter "$2" -
  [ "$name" != . ] || __moor_fail EXISTS
  if [ -n "$rest" ]; then
    made=\${here%/}/$name
    mkdir -p "\${real%/*}" && cd -P "\${real%/*}" || exit
    name=\${real##*/}
  fi
  printf '%s\000%s' "$real" "$made"
  same=
  if [ ! -L "./$name" ] && [ ! -L "$from" ] && [ "$from" -ef "./$name" ]; then same=1; fi
  if { [ -e "./$name" ] || [ -L "./$name" ]; } && [ -z "$same" ]; then
    [ "$3" = 1 ] || __moor_fail EXISTS
    if [ -L "./$name" ]; then rm -f "./$name" || exit; fi
    if [ -d "./$name" ]; then __moor_fail DIR; fi
    exec mv -f "$from" "./$name"
  fi
  # Another spelling of the same name, where the file system does not tell them apart.
  if [ -n "$same" ]; then exec mv -f "$from" "./$name"; fi
  mv -n "$from" "./$name" || {
    if [ -e "./$name" ] || [ -L "./$name" ]; then __moor_fail EXISTS; fi
    exit 1
  }
  if [ -e "$from" ] || [ -L "$from" ]; then __moor_fail EXISTS; fi
}

# __moor_mkdir PATH MODE
__moor_mkdir() {
  __moor_enter "$1" follow
  if [ -z "$rest" ]; then
    if [ -d "./$name" ]; then exit 0; fi
    if [ -e "./$name" ]; then __moor_fail EXISTS; fi
  fi
  if [ "$2" = - ]; then exec mkdir -p "$real"; fi
  exec mkdir -p -m "$2" "$real"
}

# __moor_prune FIRST LAST: removes empty folders from LAST up to FIRST.
__moor_prune() {
  folder=$2
  case $folder/ in "$1"/*) ;; *) exit 0 ;; esac
  while rmdir "$folder" 2>/dev/null; do
    [ "$folder" != "$1" ] || break
    folder=\${folder%/*}
  done
}
`.replaceAll("\\${", "${");
