/** Part of the file library: what is there. */
export const STAT_FUNCTIONS: string = String.raw`
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
`;
