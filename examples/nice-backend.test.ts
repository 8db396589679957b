import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describeEnvironment } from "../test/conformance/index.ts";
import { createNiceEnvironment } from "./nice-backend.ts";

describeEnvironment({
  name: "nice",
  create: async () => {
    const workspace = await mkdtemp(join(tmpdir(), "nice-"));
    return createNiceEnvironment({ workspace, stateDir: join(workspace, ".state") });
  },
  gaps: {
    "/dev/stdout and /dev/stderr can be opened":
      "Node's pipes are sockets, which no program can open by name",
  },
  areas: ["exec", "sessions", "output", "health"],
});
