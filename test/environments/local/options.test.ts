import { expect, it } from "vitest";
import { createLocalEnvironment } from "../../../environments/local/index.ts";

it.each([{ "not-a-name": "1" }, { "A=B": "1" }, { "": "1" }, { A: "a\0b" }])(
  "createLocalEnvironment() refuses the variables %j",
  (env) => {
    expect(() => createLocalEnvironment({ stateDir: "/nowhere", env })).toThrow(
      expect.objectContaining({ name: "MoorageError", code: "INVALID_ARGUMENTS" }),
    );
  },
);
