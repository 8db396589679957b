/** Accounts as people have them: other login shells, noisy files, no home to write to, no shell at all. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { makePlace } from "./places.ts";
import { canRun, sshdObstacle } from "./sshd.ts";

const SCRIPT = [
  "echo 'wow!' \"it's\" `echo tick`!",
  "cat <<'END'",
  "a ! b 'c' `d` $e \\n",
  "END",
  'printf "%s\\n" "${A:-z}" !',
].join("\n");

describe.runIf(canRun("ssh accounts", sshdObstacle()))("an account", () => {
  it.each(["/bin/bash", "/bin/dash", "/usr/bin/fish", "/bin/tcsh"])(
    "SSH-19, SSH-20: with the login shell %s runs commands and scripts unchanged",
    async (shell) => {
      if (!canRun(`login shell ${shell}`, sshdObstacle(shell))) return;
      await using place = await makePlace({ shell });
      const environment = place.make();
      expect(await environment.exec("A=1; echo ${A:-z}")).toMatchObject({ exitCode: 0, output: "1\n" });
      expect(await environment.exec(SCRIPT)).toMatchObject({
        exitCode: 0,
        output: "wow! it's tick!\na ! b 'c' `d` $e \\n\nz\n!\n",
      });
      expect(await environment.exec(["printf", "%s|", "a'b", "!x", "$HOME", "a\nb"])).toMatchObject({
        output: "a'b|!x|$HOME|a\nb|",
      });
    },
  );

  it("SSH-17, SSH-18: with noisy files shows only what a command writes, and keeps its folder", async () => {
    await using place = await makePlace();
    const noise =
      "echo hi from bashrc; printf '\\033[33mhello'; echo oops >&2; head -c 3000000 /dev/zero | tr '\\0' n; head -c 300000 /dev/zero | tr '\\0' e >&2\n";
    writeFileSync(join(place.account.home, ".bashrc"), noise);
    writeFileSync(join(place.account.home, ".bash_profile"), `${noise}export FROM_PROFILE=yes\n`);
    const environment = place.make();
    const session = await environment.openSession();
    expect(await session.exec("printf x")).toMatchObject({ output: "x", notes: [] });
    await session.exec("cd /usr/share");
    expect(await session.exec("pwd; echo $FROM_PROFILE")).toMatchObject({
      output: "/usr/share\nyes\n",
      cwd: "/usr/share",
    });
    await environment.files.writeFile("a", "b");
    expect((await environment.files.readFile("a")).bytes.toString()).toBe("b");
  });

  it("whose files read standard input or change directory still works", async () => {
    await using place = await makePlace();
    writeFileSync(join(place.account.home, ".bash_profile"), "cd /tmp; read -r -t 1 x; set -u; umask 077\n");
    const environment = place.make();
    expect(await environment.exec("pwd")).toMatchObject({ output: `${place.account.home}\n` });
  });

  it.each([
    [
      "ask a question",
      "read -p 'Go on? ' answer; echo asked",
      /ended with.* before it started ours; it said .*asked/,
    ],
    ["read all there is", "cat", /before it started ours/],
    ["start another shell", "exec python3 -i", /it ended with code|before it started ours/],
    ["send standard error away", "exec 2>/dev/null", /its files send standard error elsewhere/],
    ["join the outputs", "exec 2>&1", /its files send standard error elsewhere/],
    ["close standard error", "exec 2>&-", /its files send standard error elsewhere/],
    ["end the shell", "echo bye; exit 0", /ended with.* before it started ours; it said "bye"/],
  ])("whose files %s is told so at once", async (_, line, message) => {
    await using place = await makePlace();
    writeFileSync(join(place.account.home, ".bashrc"), `${line}\n`);
    await expect(place.make().start()).rejects.toMatchObject({
      code: "SSH_SESSION_REFUSED",
      message: expect.stringMatching(message),
    });
  });

  it.each(["", "/no/such"])(
    "whose files leave the PATH %j has the programs that every system has",
    async (path) => {
      await using place = await makePlace();
      writeFileSync(join(place.account.home, ".bashrc"), `export PATH=${path}\n`);
      const environment = place.make();
      expect(await environment.exec("echo $((1 + 1)); exit 4")).toMatchObject({ output: "2\n", exitCode: 4 });
      await environment.files.writeFile("a", "b");
      expect((await environment.files.readFile("a")).bytes.toString()).toBe("b");
    },
  );

  it("SSH-24: starts in the workspace that was named, not in its home", async () => {
    await using place = await makePlace();
    const workspace = mkdtempSync(join(tmpdir(), "moorage-srv-"));
    try {
      execFileSync("chmod", ["755", workspace]);
      const environment = place.make({ workspace });
      expect(await environment.exec("pwd")).toMatchObject({ output: `${workspace}\n`, cwd: workspace });
      expect(environment.workspace).toBe(workspace);
    } finally {
      rmSync(workspace, { recursive: true });
    }
    await expect(place.make({ workspace: "/no/such" }).start()).rejects.toMatchObject({
      code: "WORKDIR_MISSING",
    });
    const home = place.make({ workspace: "~/.ssh" });
    expect(await home.exec("pwd")).toMatchObject({ output: `${place.account.home}/.ssh\n` });
  });

  it("with a home that it may not write to works", async () => {
    await using place = await makePlace();
    execFileSync("chown", ["root:", place.account.home]);
    const environment = place.make();
    expect(await environment.exec("touch x; echo $?")).toMatchObject({
      output: expect.stringMatching(/1\n$/),
    });
    const process = await environment.processes.start("echo done; sleep 0.1");
    await process.wait();
    expect((await process.log()).text).toBe("done\n");
  });

  it("SSH-08, SSH-09, SSH-12: moves large data whole, without sftp", { tags: ["slow"] }, async () => {
    await using place = await makePlace();
    const environment = place.make();
    const bytes = Buffer.alloc(20 * 1024 * 1024, "0123456789abcdef\0\xff", "latin1");
    const hash = createHash("sha256").update(bytes).digest("hex");
    const startedAt = performance.now();
    await environment.files.writeFile("big", bytes);
    expect(performance.now() - startedAt).toBeLessThan(30_000);
    expect(await environment.exec("sha256sum <big")).toMatchObject({ output: `${hash}  -\n` });
    const seen = createHash("sha256");
    await environment.exec("cat big", { onOutput: ({ data }) => void seen.update(data) });
    expect(seen.digest("hex")).toBe(hash);
    const { truncated } = await environment.exec("head -c 3000000 big");
    expect(truncated.output?.totalBytes).toBe(3_000_000);
    expect(await environment.exec("sha256sum", { stdin: bytes })).toMatchObject({ output: `${hash}  -\n` });
  });

  it("SSH-10: tells a command that a signal ended", async () => {
    await using place = await makePlace();
    expect(await place.make().exec("sh -c 'kill -TERM $$'")).toMatchObject({ exitCode: 143 });
  });

  it("without a shell is told in the server's words", async () => {
    await using place = await makePlace({ shell: "/usr/sbin/nologin" });
    await expect(place.make().start()).rejects.toMatchObject({
      code: "SSH_SESSION_REFUSED",
      message: expect.stringContaining("This account is currently not available."),
    });
  });

  it("SSH-26: whose password has expired is told so", async () => {
    await using place = await makePlace({ config: ["UsePAM yes"] });
    execFileSync("chage", ["-d", "0", place.account.name]);
    await expect(place.make().start()).rejects.toMatchObject({
      code: "SSH_PASSWORD_EXPIRED",
      message: expect.stringMatching(/password/i),
    });
  });

  it("has a session's variables in no process list", async () => {
    await using place = await makePlace();
    const environment = place.make();
    const session = await environment.openSession({ env: { SECRET: "s3cr3t-value" } });
    expect(
      await session.exec("grep -la s3cr3t-value /proc/[0-9]*/cmdline 2>/dev/null; echo $SECRET"),
    ).toMatchObject({
      output: "s3cr3t-value\n",
    });
  });
});
