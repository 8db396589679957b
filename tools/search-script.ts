/**
 * The script under search_files: ripgrep where there is one, else find and grep. It runs inside the environment, in
 * any POSIX sh. stdout begins with a line that tells the format of what follows:
 *
 * - `rg`: JSON lines of `rg --json`
 * - `null`: records of `grep -n --null`: path, NUL, line number, `:` or `-`, line
 * - `names`: paths, each with a NUL; `rg names` when ignored and hidden ones may be left out
 *
 * Exit code 70 says that a grep was killed, so that matches are missing; ripgrep's own code is 137 then.
 */
export const SEARCH_SCRIPT = String.raw`
kind=$1 path=$2 glob=$3 hidden=$4 rg_pattern=$5 MOORAGE_PATTERN=$6 MOORAGE_CONTEXT=$7 beyond_grep=$9
MOORAGE_CASE=$8
case $path in
  "~") path=$HOME ;;
  "~/"*) path=$HOME/\${path#??} ;;
  /*|.|./*|../*|..) ;;
  *) path=./$path ;;
esac
[ -e "$path" ] || exit 66
[ -f "$path" ] || [ -d "$path" ] || exit 67
[ -r "$path" ] || exit 68
if command -v rg >/dev/null 2>&1; then
  set -- --no-config --sort=path
  [ "$hidden" = 1 ] && set -- "$@" --hidden --no-ignore '--glob=!.git'
  if [ "$kind" = names ]; then
    echo 'rg names'
    exec rg --files --null "$@" -- "$path"
  fi
  [ -z "$glob" ] || set -- "$@" "--glob=$glob"
  [ "$MOORAGE_CONTEXT" = 0 ] || set -- "$@" "--context=$MOORAGE_CONTEXT"
  echo rg
  exec rg --json "$@" -e "$rg_pattern" -- "$path"
fi
LC_ALL=C
export LC_ALL MOORAGE_PATTERN MOORAGE_CONTEXT MOORAGE_CASE
# Without ripgrep ignored and hidden files are always searched; git's own folder is not, unless it is named.
find_files() { find -H "$path" -name .git ! -path "$path" -prune -o -type f "$@" 2>/dev/null; }
if [ "$kind" = names ]; then
  echo names
  find_files -print0
  exit 0
fi
if [ -n "$beyond_grep" ]; then printf '%s\n' "$beyond_grep" >&2; exit 69; fi
echo | grep -E -e "$MOORAGE_PATTERN" >/dev/null 2>&1
[ "$?" -le 1 ] || exit 65
[ -n "$glob" ] || glob='*'
if printf 'a\n' | grep -n --null a >/dev/null 2>&1; then
  echo null
  find_files -name "$glob" -print0 | sort -z |
    xargs -0 grep -nHIE$MOORAGE_CASE --null -C "$MOORAGE_CONTEXT" -e "$MOORAGE_PATTERN" -- 2>/dev/null
  # What xargs says of a command that a signal ended.
  [ "$?" -ne 125 ] || exit 70
  exit 0
fi
echo null
find_files -name "$glob" -print0 | sort -z | xargs -0 sh -c '
  grep -qsE$MOORAGE_CASE -e "$MOORAGE_PATTERN" -- "$@"
  [ "$?" -ne 1 ] || exit 0
  killed=0
  for file; do
    grep -qsE$MOORAGE_CASE -e "$MOORAGE_PATTERN" -- "$file"
    case $? in
      0) ;;
      1 | 2) continue ;;
      *) killed=1; continue ;;
    esac
    # A NUL byte makes a file binary. Where grep cannot tell, tr can.
    [ "$(head -c 65536 -- "$file" | tr -d "\000" | wc -c)" -eq "$(head -c 65536 -- "$file" | wc -c)" ] || continue
    {
      grep -nE$MOORAGE_CASE -C "$MOORAGE_CONTEXT" -e "$MOORAGE_PATTERN" -- "$file"
      # No line of its own is without a number.
      [ "$?" -le 2 ] || echo killed
    } | while IFS= read -r line; do
      [ "$line" != killed ] || exit 1
      printf "%s\000%s\n" "$file" "$line"
    done || killed=1
  done
  exit "$killed"
' sh
[ "$?" = 0 ] || exit 70
exit 0
`.replaceAll("\\${", "${");
