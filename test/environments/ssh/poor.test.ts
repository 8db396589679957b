/** Machines with little: BusyBox alone, a PATH that somebody else filled, a disk that is full. */
import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { makePlace } from "./places.ts";
import { canRun, sshdObstacle, temporaryFolder } from "./sshd.ts";

describe.runIf(canRun("ssh, poor machines", sshdObstacle("/usr/bin/busybox")))("a machine", () => {
  it("whose programs are BusyBox alone runs commands, files, processes and searches", async () => {
    using programs = temporaryFolder();
    execFileSync("busybox", ["--install", "-s", programs.path]);
    chmodSync(programs.path, 0o755);
    await using place = await makePlace({ shell: "/bin/dash", config: [`SetEnv PATH=${programs.path}`] });
    // /etc/profile has a PATH of its own.
    writeFileSync(join(place.account.home, ".profile"), `PATH=${programs.path}; export PATH\n`);
    const environment = place.make();
    const session = await environment.openSession();
    expect(environment.info()).toMatchObject({ shell: "sh" });
    expect(await session.exec("cd /usr; export A=1; command -v bash; readlink /proc/$$/exe")).toMatchObject({
      output: "/usr/bin/busybox\n",
    });
    expect(await session.exec("echo $PWD $A")).toMatchObject({ output: "/usr 1\n" });
    const { files } = environment;
    await files.writeFile("folder/odd 'name", Buffer.from("a\0b\n"));
    expect((await files.readFile("folder/odd 'name")).bytes.toString()).toBe("a\0b\n");
    expect((await files.list("folder")).map(({ name }) => name)).toEqual(["odd 'name"]);
    await files.remove("folder", { recursive: true });
    expect(await environment.exec("sleep 600 & setsid sleep 601", { timeoutMs: 1_000 })).toMatchObject({
      timedOut: true,
      survivors: [],
    });
    const process = await environment.processes.start("echo line; sleep 600");
    await process.wait({ logPattern: "line", timeoutMs: 10_000 });
    await process.kill();
    expect(await process.info()).toMatchObject({ status: "killed" });
  });

  it("whose PATH begins with somebody else's programs takes none of them for its own work on files", async () => {
    using programs = temporaryFolder();
    chmodSync(programs.path, 0o755);
    const names = ["printf", "cd", "read", "eval", "export", "kill", "echo", "test", "["];
    for (const name of names)
      writeFileSync(join(programs.path, name), '#!/bin/sh\n/usr/bin/touch "$0.was-run"\n', { mode: 0o755 });
    chmodSync(programs.path, 0o777);
    await using place = await makePlace({ config: [`SetEnv PATH=${programs.path}:.:/usr/bin:/bin`] });
    const environment = place.make();
    await environment.files.writeFile("a", "b");
    expect((await environment.files.readFile("a")).bytes.toString()).toBe("b");
    expect(await environment.exec("pwd")).toMatchObject({ output: `${place.account.home}\n` });
    expect(names.filter((name) => existsSync(join(programs.path, `${name}.was-run`)))).toEqual([]);
  });

  it("whose disk is full says so, and keeps the file that was there", async ({ skip }) => {
    await using place = await makePlace();
    const small = join(place.account.home, "small");
    mkdirSync(small);
    try {
      execFileSync("mount", ["-t", "tmpfs", "-o", "size=1m,mode=777", "tmpfs", small], { stdio: "pipe" });
    } catch (error) {
      skip(`no small disk can be made here: ${String(error)}`);
    }
    try {
      const environment = place.make({ workspace: small });
      await environment.files.writeFile("file", "before");
      await expect(
        environment.files.writeFile("file", Buffer.alloc(4 * 1_048_576, "x")),
      ).rejects.toMatchObject({
        code: "STORAGE_FULL",
      });
      expect((await environment.files.readFile("file")).bytes.toString()).toBe("before");
      expect((await environment.files.list(".")).map(({ name }) => name)).toEqual(["file"]);
      expect(await environment.exec("head -c 4000000 /dev/zero >more; echo $?")).toMatchObject({
        output: expect.stringMatching(/No space left[\s\S]*1\n$/),
      });
      await environment.stop();
    } finally {
      execFileSync("umount", ["--lazy", small]);
    }
  });
});
