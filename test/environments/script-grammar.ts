/**
 * Random shell scripts for comparing shells. They are small programs that end: loops are bounded, functions do not
 * call, and the right side of a pipe reads all of its input, so that no broken pipe depends on timing.
 *
 * No path in them is absolute, so that no character taken out makes them write elsewhere.
 *
 * Not produced, since a session cannot answer as a shell of its own does: `$$`, `$PPID`, `$0`, `$LINENO`,
 * `$BASHPID`, `$BASH_…`, `$-`, `$RANDOM`, `$SECONDS`, aliases (a session expands them), `$_`, co-processes and job
 * control.
 */
import fc from "fast-check";

/** `posix` is what dash and BusyBox sh know; `bash` adds bash's own grammar. */
export type Dialect = "posix" | "bash";

const VARIABLES = ["a", "b", "c"] as const;
const FILES = ["one.txt", "two.txt", "note.md", "out", "sub/deep.txt"] as const;
const TEXT = [
  "x",
  "yes",
  "0",
  "7",
  "12",
  "a b",
  "",
  "-n",
  "ü",
  "it's",
  "tab\there",
  "two\nlines",
  "*",
  "$a",
  "\\",
  '"',
] as const;

const pick = <Value>(values: readonly Value[]): fc.Arbitrary<Value> => fc.constantFrom(...values);

function singleQuoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** Fills the holes of a template, `~` each, in order. */
function fill(template: string, ...parts: readonly fc.Arbitrary<string>[]): fc.Arbitrary<string> {
  return fc.tuple(...parts).map((values) => {
    let at = 0;
    return template.replaceAll("~", () => values[at++] ?? "");
  });
}

/** Like `oneof` over templates that share their parts by letter: C command, W word, V variable, F file, N number, L list. */
function templates(
  kinds: Readonly<Record<string, fc.Arbitrary<string>>>,
  lines: readonly string[],
): fc.Arbitrary<string>[] {
  return lines.map((line) => {
    const holes = [...line.matchAll(/<([A-Z])>/g)].map(([, kind]) => kinds[kind ?? ""] ?? fc.constant(""));
    return fill(line.replaceAll(/<[A-Z]>/g, "~"), ...holes);
  });
}

const EXPANSIONS = [
  "$<V>",
  '"$<V>"',
  '"${<V>}"',
  "${<V>:-none}",
  '"${<V>-unset}"',
  "${<V>:+set}",
  '"${#<V>}"',
  '"${<V>%x*}"',
  '"${<V>##*e}"',
  "${<V>:=<N>}",
  '"$*"',
  '"$@"',
  "$#",
  "$?",
  "$((<N> + <N> * 2))",
  "$((<N> % 3 == 1 ? 4 : 5))",
  "\\$<V>",
  "a\\ b",
  '"<N>$<V>"',
  "*.txt",
  "[no]*",
  "?ne.txt",
  "nomatch*",
] as const;
const BASH_EXPANSIONS = [
  "{x,y}<N>",
  "{1..3}",
  "$'a\\tb'",
  '"${<V>//x/y}"',
  '"${<V>^^}"',
  '"${<V>:1:2}"',
  '"${arr[@]}"',
  '"${#arr[@]}"',
  '"${!<V>}"',
] as const;

const SIMPLE = [
  "echo <W> <W>",
  "echo <W>",
  "printf '%s|' <W> <W>; echo",
  "printf '%d\\n' <N>",
  "true",
  "false",
  ":",
  "cd sub",
  "cd ..",
  "cd <F>",
  "cd missing",
  "pwd | sed 's:.*/::'",
  "export <V>=<W>",
  "<V>=<W>",
  "<V>=<N> <V>=<N>",
  "<V>=<W> sh -c 'echo \"$a-$b-$c\"'",
  "unset <V>",
  "set -- <W> <W>",
  "shift",
  "test <W> = <W>",
  '[ -n "$<V>" ]',
  "[ <N> -lt <N> ]",
  "[ -f <F> ]",
  "read <V> <<EOF\n<W> rest\nEOF",
  "echo in | read <V>",
  "cat <F>",
  "cat",
  "wc -c <<F>",
  "ls",
  "sort <F>",
  "eval 'echo <N>; <V>=<N>'",
  'eval "echo $<V>"',
  "command echo <W>",
  "command -v echo",
  "umask 027",
  "umask",
  "echo <W> ><F>",
  "echo <W> >><F>",
  "echo <W> >&2",
  "cat <missing",
  "ls missing 2>&1 | wc -l",
  "nosuchcommand <W>",
  "./<F>",
  "echo <W> 2>&1 >sink",
  "echo lost >&-",
  "exec 3><F>; echo three >&3; exec 3>&-",
  "sh -c 'exit <N>'",
  "(exit <N>)",
  "trap 'echo bye' EXIT",
  "trap 'echo bye <N>' 0",
  "trap - EXIT",
  "set -e",
  "set +e",
  "set -u",
  "set -f",
  "set +f",
  "set -x",
  "set +x",
  "break",
  "continue",
  "return <N>",
  "exit <N>",
  "exit",
  "exec echo <W>",
  "exec sh -c 'echo in; exit <N>'",
  "readonly r=<N>",
  "r=2",
  "getopts ab: opt -a -b x; echo $opt",
  "wait",
  "sleep 0 & wait; echo $?",
  "(echo child; exit <N>) & wait $!; echo $?",
  "kill -TERM $(sh -c 'echo $PPID') 2>sink || :",
  "type cd >sink",
  ". ./<F>",
  "mkdir -p made/<N>",
  "rm -f <F>",
  "mv <F> moved",
] as const;
const BASH_SIMPLE = [
  "arr=(<W> <N>)",
  "arr+=(<N>)",
  "declare -i n=<N>+<N>; echo $n",
  "local x=1",
  "declare -x <V>=<N>",
  "export -n <V>",
  "[[ $<V> == x* ]]",
  "[[ <N> -lt <N> && -n $<V> ]]",
  "((<V> = <N> + 1))",
  "let <V>=<N>-1",
  "cat <<<<W>",
  "echo <W> |& cat",
  "set -o pipefail",
  "shopt -s nullglob",
  "shopt -s extglob",
  "printf -v <V> %03d <N>",
  "mapfile -t arr < <F>; echo ${#arr[@]}",
  "trap 'echo err' ERR",
  "read -r -d x <V> <<<yxz",
  "echo <(echo) | wc -l",
  "for ((i = 0; i < 3; i++)); do echo $i; done",
  "echo ${<V>@Q}",
  "f() { local <V>=<N>; echo $<V>; }; f",
] as const;

const FILTERS = [
  "cat",
  "sort",
  "wc -l",
  "tr a-z A-Z",
  "sed 's/^/> /'",
  "grep -c e",
  "{ cat; echo end; }",
  "(cat; exit <N>)",
  'while read -r l; do echo "[$l]"; done',
] as const;

const COMPOUND = [
  "<C>; <C>",
  "<C>\n<C>",
  "<C> && <C>",
  "<C> || <C>",
  "! <C>",
  "(<L>)",
  "{ <L>; }",
  "if <C>; then <L>; else <L>; fi",
  "if <C>; then <L>; elif <C>; then <L>; fi",
  "for v in <W> <W> x; do <L>; done",
  'for v in *.txt; do echo "$v"; <C>; done',
  "case <W> in x*) <L>;; [0-9]) <L>;; *) <L>;; esac",
  "<C> | <P>",
  "<C> | <P> | <P>",
  "<V>=$(<L>)",
  'echo "got: $(<C>)"',
  "echo `<S>`",
  "f() { <D>; }",
  "f() (<D>)",
  "f <W> <W>",
  "f",
  "{ <L>; } >out 2>&1",
  "{ <L>; } 2>sink",
  "(<L>) <<F>",
  "cat <<EOF\nhere $<V> $(<S>) \\$x\nEOF",
  "cat <<'EOF'\nhere $<V> `x` \\\nEOF",
  "cat <<-EOF\n\ttab <N>\n\tEOF",
  "{ <L>; } & wait; echo $?",
  "n=3; while [ $((n = n - 1)) -ge 0 ]; do <L>; done",
  "until [ $((m = m + 1)) -ge 3 ]; do <L>; done",
  "eval '<S>'",
  "sh <<'EOF'\n<S>\nEOF",
  "# comment it's\n<C>",
  "<C> # (",
] as const;

/** Ways to break a script: text added at its end. */
const BREAKERS = [
  "",
  "",
  "",
  "",
  "",
  "",
  "",
  "",
  "\n)",
  "; fi",
  "'",
  '"',
  "\nif true; then",
  "\ncat <<EOF\nopen",
  "\n$(",
  "; ;",
  "\\",
  "\n}",
  " |",
  " &&",
  "`",
  "\n((",
  "\n${",
] as const;

/** Arbitrary scripts in a dialect. */
export function shellScript(dialect: Dialect): fc.Arbitrary<string> {
  const number = fc.integer({ min: 0, max: 9 }).map(String);
  const leaf = { V: pick(VARIABLES), F: pick(FILES), N: number };
  const expansions = dialect === "bash" ? [...EXPANSIONS, ...BASH_EXPANSIONS] : EXPANSIONS;
  const word = fc.oneof(
    { weight: 2, arbitrary: pick(TEXT).map(singleQuoted) },
    { weight: 1, arbitrary: pick(["x", "yes", "7", "-e", "one.txt"]) },
    { weight: 4, arbitrary: fc.oneof(...templates(leaf, expansions)) },
  );
  const simple = fc.oneof(
    ...templates({ ...leaf, W: word }, dialect === "bash" ? [...SIMPLE, ...BASH_SIMPLE] : SIMPLE),
  );
  const filter = fc.oneof(...templates(leaf, FILTERS));
  // Texts inside quotes and back-quotes hold no quote of their own.
  const plain = pick([
    "echo in",
    "true",
    "false",
    "exit 3",
    "echo one; echo two >&2",
    "ls",
    "cd sub; pwd | wc -l",
    "echo $a",
    "return 2",
    "set -e; false; echo no",
  ]);
  const body = fc
    .array(
      simple.filter((text) => !/\bf\b/.test(text)),
      { minLength: 1, maxLength: 3 },
    )
    .map((lines) => lines.join("\n"));
  let command: fc.Arbitrary<string> = simple;
  for (let depth = 0; depth < 3; depth += 1) {
    const inner = command;
    const list = fc.array(inner, { minLength: 1, maxLength: 3 }).map((lines) => lines.join("\n"));
    const parts = {
      ...leaf,
      W: word,
      C: inner,
      L: list.map((text) => `${text}\n`),
      P: filter,
      S: plain,
      D: body.map((text) => `${text}\n`),
    };
    command = fc.oneof(
      { weight: 3, arbitrary: simple },
      { weight: 2, arbitrary: fc.oneof(...templates(parts, COMPOUND)) },
    );
  }
  const script = fc.array(command, { minLength: 1, maxLength: 6 }).map((lines) => lines.join("\n"));
  return fc.tuple(script, pick(BREAKERS)).map(([text, breaker]) => `${text}${breaker}`);
}

/** Scripts from which one character of the grammar was taken: a quote, a bracket, a line's end. */
export function damagedScript(dialect: Dialect): fc.Arbitrary<string> {
  return fc.tuple(shellScript(dialect), fc.nat()).map(([text, cut]) => {
    const places = [...text.matchAll(/["'`$(){}[\];&|<>\\\n]/g)].map(({ index }) => index);
    const place = places[cut % Math.max(1, places.length)] ?? 0;
    return text.slice(0, place) + text.slice(place + 1);
  });
}
