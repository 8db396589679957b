/** An integration test against a container that testcontainers started: how a suite of yours may look. */
import { attachDocker, testEnvironment } from "moorage/testing";
import { GenericContainer } from "testcontainers";
import { describe, expect, it } from "vitest";

// The image of your service; this one is built with the repository.
const IMAGE = "moorage/busybox";

describe("a service in a container", () => {
  it("answers what was stored, and is left running", async () => {
    const container = await new GenericContainer(IMAGE)
      .withCommand(["sh", "-c", "mkdir -p /data && echo 42 >/data/answer && sleep 600"])
      .start();
    try {
      {
        await using environment = await attachDocker(container);
        await using session = await environment.openSession({ cwd: "/data" });
        const { exitCode, output } = await session.exec("cat answer");
        expect({ exitCode, output }).toEqual({ exitCode: 0, output: "42\n" });
        await environment.files.writeFile("/data/answer", "43\n");
      }
      expect((await container.exec(["cat", "/data/answer"])).output).toBe("43\n");
    } finally {
      await container.stop();
    }
  });

  it("has a throw-away neighbour in one call", async () => {
    await using environment = await testEnvironment({ image: IMAGE });
    const { output } = await environment.exec("echo $((6 * 7))");
    expect(output).toBe("42\n");
  });
});
