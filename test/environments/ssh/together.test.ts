/** A machine over SSH beside this one, in one Moorage. */
import { realpathSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { createLocalEnvironment } from "../../../environments/local/index.ts";
import { createMoorage } from "../../../src/moorage.ts";
import { makePlace } from "./places.ts";
import { canRun, sshdObstacle } from "./sshd.ts";

describe.runIf(canRun("ssh beside local", sshdObstacle()))("a machine beside this one", () => {
  it("SSH-21: has a folder of its own for each caller, and takes commands with the line ends of Windows", async () => {
    await using place = await makePlace();
    const here = realpathSync(place.folder);
    const stateDir = join(place.folder, "state");
    await using local = createLocalEnvironment({ workspace: here, stateDir });
    await using moorage = await createMoorage({
      environments: { here: local, box: place.make() },
      stateDir,
    });
    const run = (caller: string, environment: string, command: string) =>
      moorage.call({ name: "terminal", caller, environment, arguments: { command } });
    await Promise.all([
      run("one", "box", "cd /usr"),
      run("two", "box", "cd /etc"),
      run("one", "here", "cd /var"),
    ]);
    const places = [
      ["one", "box", "/usr"],
      ["two", "box", "/etc"],
      ["one", "here", "/var"],
      ["two", "here", here],
      ["three", "box", place.account.home],
    ] as const;
    const answers = await Promise.all(places.map(([caller, environment]) => run(caller, environment, "pwd")));
    expect(answers).toMatchObject(places.map(([, , folder]) => ({ content: { output: `${folder}\n` } })));
    expect(await run("one", "box", "echo a\r\necho b\r\n")).toMatchObject({
      content: { output: "a\nb\n" },
    });
    expect(await run("one", "box", "printf 'a\rb' | od -An -tx1")).toMatchObject({
      content: { output: " 61 0d 62\n" },
    });
  });
});
