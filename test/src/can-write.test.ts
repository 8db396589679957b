import { describe, expect, it } from "vitest";
import { judgeCommand } from "../../src/checkpoints/can-write.ts";

describe("judgeCommand()", () => {
  it("knows readers, with numbers where bash takes names too", () => {
    const command = '[ -f "$X" ] && echo $((1 + 16#ff)) ${X:1:2} ${X[0]} ${X[@]} ${#X}; [[ 1 -lt 2 ]]; wait';
    expect(judgeCommand(command)).toEqual({ writes: false, redefines: false });
  });

  it.each([
    "[ -v 'a[$(touch c)]' ]",
    "test -v 'a[$(touch c)]'",
    "[[ -v 'a[$(touch c)]' ]]",
    "[[ 'a[$(touch c)]' -eq 0 ]]",
    "[[ $X -gt 0 ]]",
    "for x in 'a[$(touch c)]'; do echo $((x)); done",
    "echo ${y:x}",
    "echo ${y:0:x}",
    "echo ${a[x]}",
    "echo ${!x}",
    "(( x ))",
    "wait -p 'a[$(touch c)]'",
    "[ $(echo -v) 'a[$(touch c)]' ]",
  ])("takes %s for one that runs what a variable's name holds", (command) => {
    expect(judgeCommand(command)).toMatchObject({ writes: true });
  });

  it.each(["[[ b > c ]]", "[[ c < b ]]", "echo $'a\\'; touch c #'"])(
    "takes %s for what a shell makes of it that is no bash",
    (command) => {
      expect(judgeCommand(command)).toMatchObject({ writes: true });
    },
  );

  it.each(["printf -v PATH ./bin", "wait -p PATH", "getopts a PATH"])(
    "knows that %s may change what later names mean",
    (command) => {
      expect(judgeCommand(command)).toEqual({ writes: true, redefines: true });
    },
  );

  it("does not take the words of our own language for programs", () => {
    expect(judgeCommand("constructor a")).toMatchObject({ writes: true });
  });
});
