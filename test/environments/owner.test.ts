import { spawn } from "node:child_process";
import { once } from "node:events";
import { describe, expect, it } from "vitest";
import { judgeOwner, ownerLabel, type ProcessTable, thisProcessTable } from "../../environments/owner.ts";

const table: ProcessTable = {
  machine: "m1",
  bootId: "b1",
  namespace: "n1",
  pid: 10,
  startTime: (pid) => (pid === 10 ? "100" : pid === 11 ? "110" : "gone"),
};

describe("judgeOwner()", () => {
  it.each([
    ["this process", "1:m1:b1:n1:10:100", true, "self"],
    ["another living process", "1:m1:b1:n1:11:110", true, "live"],
    ["a number that another process has now", "1:m1:b1:n1:11:5", true, "dead"],
    ["a process that is gone", "1:m1:b1:n1:12:120", true, "dead"],
    ["an earlier boot, container stopped", "1:m1:b0:n1:11:110", false, "dead"],
    ["another boot, container running", "1:m1:b0:n1:11:110", true, "unknown"],
    ["another machine", "1:m2:b1:n1:12:120", true, "unknown"],
    ["another process namespace", "1:m1:b1:n2:12:120", true, "unknown"],
    ["an unknown version", "2:m1:b1:n1:12:120", true, "unknown"],
    ["no number", "1:m1:b1:n1:x:120", true, "unknown"],
    ["nothing", "", true, "unknown"],
    ["more than it should", "1:m1:b1:n1:12:120:x", true, "unknown"],
  ])("judges %s", (_what, label, running, expected) => {
    expect(judgeOwner(label, running, table)).toBe(expected);
  });

  it("knows this process, a child, and the child after its end", async () => {
    expect(judgeOwner(ownerLabel(), true)).toBe("self");
    const child = spawn("sleep", ["60"]);
    await once(child, "spawn");
    const here = thisProcessTable();
    const label = ownerLabel({ ...here, pid: child.pid ?? 0 });
    expect(judgeOwner(label, true)).toBe("live");
    child.kill("SIGKILL");
    await once(child, "exit");
    expect(judgeOwner(label, true)).toBe("dead");
  });
});
