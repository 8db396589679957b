/**
 * Renames without starting a program: a perl, where there is one, waits beside the system shell of bash and does
 * what `chmod --reference` and `mv` would be started for, two thirds of a small write's cost. It does the plain case
 * only, a new file or one of the same owner and group; for any other, and for any failure, it answers 0 and the
 * programs do it, and tell what is wrong.
 *
 * perl rather than python3 since it starts in a few milliseconds and belongs to every Debian; without it nothing is
 * lost but time.
 */

/** A list of processes knows it for ours by its first word. */
const PERL = String.raw`# __moor_replace
$/ = "\0"; $| = 1;
while (defined(my $asker = <STDIN>)) {
  my ($folder, $from, $to) = map { scalar <STDIN> } 1 .. 3;
  last unless defined $to;
  chomp($asker, $folder, $from, $to);
  my $done = 0;
  if (chdir $folder) {
    my @new = lstat "./$from";
    my @old = lstat "./$to";
    my $same = @old && ($old[2] & 0170000) == 0100000 && $old[4] == $new[4] && $old[5] == $new[5];
    if (@new && (!@old || $same && chmod($old[2] & 07777, "./$from"))) { $done = rename("./$from", "./$to") ? 1 : 0 }
  }
  print "$asker $done\n";
  chdir "/";
}`;

/** Defines `__moor_replace FOLDER FROM TO`, which is false where nothing was done, and starts the assistant. */
export const RENAME_ASSISTANT: string = String.raw`
__moor_replace() { return 1; }
if [ -n "\${BASH_VERSION-}" ] && command -v perl >/dev/null 2>&1; then
  # Grammar that other shells do not know stays inside a word.
  eval 'coproc __moor_perl { unset PERL5OPT PERL5LIB; exec perl -e "$__moor_text" 8>&- 9>&-; }'
  eval 'exec 6>&"\${__moor_perl[1]}" 7<&"\${__moor_perl[0]}" {__moor_perl[1]}>&- {__moor_perl[0]}<&-'
  __moor_replace() {
    trap "" PIPE
    printf '%s\000%s\000%s\000%s\000' "$BASHPID" "$1" "$2" "$3" >&6 || return 1
    # What another asked that was ended meanwhile is not ours.
    while IFS= read -r answer <&7; do
      case $answer in "$BASHPID "*) break ;; esac
    done
    [ "$answer" = "$BASHPID 1" ]
  }
fi
`
  .replaceAll("\\${", "${")
  .replace("eval 'coproc", () => `__moor_text='${PERL}'\n  eval 'coproc`);

/** Ends the assistant and waits for its end. */
export const RENAME_ASSISTANT_END = "exec 6>&- 7<&-; wait";
