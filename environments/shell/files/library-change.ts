/** Part of the file library: removing, renaming, making folders. */
export const CHANGE_FUNCTIONS: string = String.raw`
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
`;
