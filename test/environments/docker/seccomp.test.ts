import { expect, it } from "vitest";
import { seccompObstacle } from "../../../environments/docker/seccomp.ts";

const engine = {
  SecurityOptions: ["name=apparmor", "name=seccomp,profile=default"],
  ServerVersion: "20.10.24+dfsg1",
  Architecture: "x86_64",
};

it.each([
  [{}, null],
  [{ ServerVersion: "20.10.10" }, null],
  [
    { ServerVersion: "29.0", Architecture: "aarch64", SecurityOptions: ["name=seccomp,profile=builtin"] },
    null,
  ],
  [{ ServerVersion: "20.10.9" }, "version 20.10.9 of the engine takes none"],
  [{ ServerVersion: "4.9.4" }, "version 4.9.4 of the engine takes none"],
  [{ ServerVersion: undefined }, "version undefined of the engine takes none"],
  [{ Architecture: "s390x" }, "no filter is known for s390x"],
  [{ SecurityOptions: ["name=rootless"] }, "the engine filters no system calls"],
  [{ SecurityOptions: undefined }, "the engine filters no system calls"],
  [{ SecurityOptions: ["name=seccomp,profile=/etc/own.json"] }, "the engine has a filter of its own"],
])("an engine that says %j can have the filter but for: %s", (said, obstacle) => {
  expect(seccompObstacle({ ...engine, ...said })).toBe(obstacle);
});
