/** Part of the file library: writing a file, and taking that back. */
export const WRITE_FUNCTIONS: string = String.raw`
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
`;
