/** What small servers do that OpenSSH does not. */
import { describe, expect, it } from "vitest";
import { createSshEnvironment } from "../../../environments/ssh/index.ts";
import { canTest } from "../../host/required.ts";
import { containerObstacle, startSshContainer } from "./container.ts";

const ROUNDS = 12;
const FILES = 20;

describe.runIf(canTest("ssh", "ssh, dropbear", await containerObstacle()))("a connection to dropbear", () => {
  it("is not lost when sessions begin while others end", { tags: ["slow"] }, async () => {
    await using container = await startSshContainer();
    const names = Array.from({ length: FILES }, (_, at) => `file${at}`);
    await using environment = createSshEnvironment({
      host: container.host,
      port: container.ports.dropbear,
      user: "bash",
      configFile: null,
      agent: null,
      identityFiles: [container.identityFile],
      knownHostsFiles: [container.knownHostsFile],
      stateDir: container.stateDir,
    });
    await Promise.all(names.map((name) => environment.files.writeFile(name, name)));
    // Each round needs more shells than are kept afterwards.
    for (let round = 0; round < ROUNDS; round += 1) {
      const read = await Promise.all(names.map((name) => environment.files.readFile(name)));
      expect(read.map(({ bytes }) => bytes.toString())).toEqual(names);
    }
    expect((await environment.exec("true")).notes).toEqual([]);
  });
});
