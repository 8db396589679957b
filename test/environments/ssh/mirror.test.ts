/** Mirrors of a folder on a host that is not ours: its tools may be others, and its home must stay as it was. */
import { chmodSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { mirror } from "../../../environments/sync/mirror.ts";
import { makePlace, type Place } from "./places.ts";
import { canRun, sshdObstacle, temporaryFolder } from "./sshd.ts";

/** A host folder as a umask of 002 leaves it. */
function makeHost(place: Place): string {
  const host = join(place.folder, "host");
  mkdirSync(join(host, "sub"), { recursive: true });
  for (const folder of [host, join(host, "sub")]) chmodSync(folder, 0o775);
  writeFileSync(join(host, "sub", "file"), "from here\n", { mode: 0o664 });
  return host;
}

describe.runIf(canRun("ssh mirrors", sshdObstacle()))("a mirror", () => {
  it("SSH-23: into a home changes no mode of what was there, and the key still opens it", async () => {
    await using place = await makePlace({ config: ["StrictModes yes"] });
    const { home } = place.account;
    const modes = () => [home, join(home, ".ssh")].map((path) => (statSync(path).mode & 0o7777).toString(8));
    const before = modes();
    const host = makeHost(place);
    const stateDir = join(place.folder, "state");
    const environment = place.make();
    const { pushed } = await mirror(host, environment, { direction: "push", stateDir });
    expect(pushed).toContain("sub/file");
    await environment.exec("mkdir made && echo there >made/file");
    await mirror(host, environment, { direction: "pull", stateDir });
    expect(readFileSync(join(host, "made", "file"), "utf8")).toBe("there\n");
    await environment.stop();
    expect(modes()).toEqual(before);
    expect(await place.make().exec("cat sub/file")).toMatchObject({ output: "from here\n" });
  });

  it("SSH-22: works with a tar that knows no long option, and quotes one that fails", async () => {
    using programs = temporaryFolder();
    const setTar = (script: string) =>
      writeFileSync(join(programs.path, "tar"), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
    setTar(
      `for word; do case $word in --?*) echo "tar: Option $word is not supported" >&2; exit 64;; esac; done; exec /usr/bin/tar "$@"`,
    );
    chmodSync(programs.path, 0o755);
    await using place = await makePlace({ config: [`SetEnv PATH=${programs.path}:/usr/bin:/bin`] });
    const host = makeHost(place);
    const environment = place.make();
    const sync = () =>
      mirror(host, environment, { direction: "push", stateDir: join(place.folder, "state") });
    expect((await sync()).pushed).toContain("sub/file");
    expect(await environment.exec("cat sub/file")).toMatchObject({ output: "from here\n" });

    writeFileSync(join(host, "second"), "2\n");
    setTar("echo 'tar: this one is broken' >&2; exit 2");
    await expect(sync()).rejects.toThrow("tar: this one is broken");
  });
});
