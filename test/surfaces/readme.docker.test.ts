import { readFileSync } from "node:fs";
import { join } from "node:path";
import { GenericContainer } from "testcontainers";
import { expect, it } from "vitest";
import { attachDocker } from "../../src/testing.ts";
import { BUSYBOX_IMAGE, describeWithEngine, WORKBENCH_IMAGE } from "../host/images.ts";
import { connect } from "./mcp-client.ts";
import { moor } from "./moor.ts";
import { codeOf, moorWords } from "./readme.ts";

/** The image of a line needs a registry; the README names this one for where there is none. */
function withoutRegistry(words: readonly string[]): readonly string[] {
  return words.map((word) => word.replace("docker:node:24", `docker:${WORKBENCH_IMAGE}`));
}

describeWithEngine("the README", () => {
  it("has a first call that runs a command in a container", async () => {
    const { exitCode, stdout } = await moor(withoutRegistry(moorWords("exec -e docker:")));
    expect({ exitCode, stdout }).toEqual({
      exitCode: 0,
      stdout: expect.stringMatching(/^v\d+\.\d+\.\d+\n$/),
    });
  });

  it("has one line that runs an agent's tools in a container, on this folder", async () => {
    const { client, workspace } = await connect({ line: withoutRegistry(moorWords("mcp -e docker:")) });
    await client.callTool({ name: "write_file", arguments: { path: "made.txt", content: "inside\n" } });
    expect(readFileSync(join(workspace, "made.txt"), "utf8")).toBe("inside\n");
    const result = await client.callTool({
      name: "terminal",
      arguments: { command: "pwd; ls -A; node --version" },
    });
    expect(result.structuredContent).toMatchObject({
      exit_code: 0,
      output: expect.stringMatching(/^\/workspace\nmade\.txt\nv\d+/),
    });
  });

  it("has lines that run a command in a container of testcontainers", async () => {
    const container = await new GenericContainer(BUSYBOX_IMAGE).withCommand(["sleep", "600"]).start();
    try {
      const [code = ""] = codeOf("ts").filter((each) => each.includes("attachDocker(container)"));
      // As a test's body it would be the body of an async function.
      const AsyncFunction = (async () => {}).constructor as FunctionConstructor;
      const body = new AsyncFunction("attachDocker", "container", `${code}; return { exitCode, output };`);
      expect(await body(attachDocker, container)).toEqual({ exitCode: 0, output: "Linux\n" });
      expect((await container.exec(["echo", "still here"])).output).toBe("still here\n");
    } finally {
      await container.stop();
    }
  });
});
