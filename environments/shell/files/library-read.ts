/** Part of the file library: reading whole files, ranges of bytes, ranges of lines. */
export const READ_FUNCTIONS: string = String.raw`
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
`;
