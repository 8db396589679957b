import { describe, expect, it } from "vitest";
import { exitCodeMeaning } from "../../tools/exit-codes.ts";

describe("exitCodeMeaning()", () => {
  it.each([
    ["grep x f", 1, "No line matched"],
    ["cat f | grep -q x", 1, "No line matched"],
    ["cd /srv && /bin/grep x f > out", 1, "No line matched"],
    ["echo start; rg x", 1, "No line matched"],
    ["LC_ALL=C sudo -n grep x f", 1, "No line matched"],
    ["env A=1 grep x", 1, "No line matched"],
    ["timeout 10 grep x", 1, "No line matched"],
    ["timeout 10 sleep 20", 124, "The time limit of timeout was reached"],
    ["git grep x", 1, "No line matched"],
    ["git diff --exit-code", 1, "There are differences"],
    ["diff a b", 1, "The inputs differ"],
    ["test -f x", 1, "The condition is false"],
    ["[ -f x ]", 1, "The condition is false"],
    ["[[ -f x ]]", 1, "The condition is false"],
    ["make || grep x f", 1, "No line matched"],
    ["curl -f http://a.example", 22, "The server answered with an error status"],
    ["curl http://a.example", 6, "The host name could not be resolved"],
    ["curl http://a.example", 7, "The connection was refused or failed"],
    ["curl http://a.example", 28, "The time limit was reached"],
    ["./run.sh", 126, "The command was found but could not be executed"],
    ["nosuch", 127, "Command not found"],
    ["./run", 137, "Killed by SIGKILL; often the memory limit"],
    ["./run", 139, "Ended by SIGSEGV"],
    ["./run", 143, "Ended by SIGTERM"],
  ])("of %j and %i is %j", (command, code, meaning) => {
    expect(exitCodeMeaning(command, code)).toBe(meaning);
  });

  it.each([
    ["grep x f", 0],
    ["grep x f; false", 1],
    ["make && grep x f", 1],
    ["! grep x f", 1],
    ["grep x f | wc -l", 1],
    ["(grep x f)", 1],
    ["if grep x f; then false; fi", 1],
    ["grep x f &", 1],
    ["echo grep", 1],
    ["echo 'unterminated", 2],
    ["false", 1],
    ["exit 200", 200],
    ["constructor", 1],
    ["", 1],
  ])("of %j and %i is nothing", (command, code) => {
    expect(exitCodeMeaning(command, code)).toBeNull();
  });

  it("does not parse what is far too long", () => {
    expect(exitCodeMeaning(`grep ${"x".repeat(1_000_000)}`, 1)).toBeNull();
  });
});
