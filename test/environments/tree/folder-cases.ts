/** What mirrors and checkpoints must do wherever the workspace is. Sees it through the environment alone. */
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { BaseEnvironment } from "../../../environments/base.ts";
import { mirror, type SyncOptions } from "../../../environments/sync/mirror.ts";
import { createMoorage, type Moorage } from "../../../src/moorage.ts";
import { slowUnless } from "../../slow.ts";
import { ODD_NAMES } from "./cases.ts";
import { picture, pictureOf, write } from "./picture.ts";
import { checkSyncModel } from "./sync-model.ts";

/** Programs that a workspace would like to have run: whoever runs one leaves the proof. */
const hostile = (proof: string) => `
mkdir -p .git/hooks nested/.git/hooks .vscode && cd . || exit 1
for each in .git nested/.git; do
  printf '%s\\n' '[core]' ' fsmonitor = touch ${proof}' ' hooksPath = hooks' ' sshCommand = touch ${proof}' \\
    '[include]' ' path = ../evil' '[filter "x"]' ' clean = touch ${proof}' ' smudge = touch ${proof}' ' required = true' \\
    '[diff]' ' external = touch ${proof}' '[diff "x"]' ' textconv = touch ${proof}' '[gpg]' ' program = touch ${proof}' \\
    '[commit]' ' gpgsign = true' >$each/config
  echo 'ref: refs/heads/main' >$each/HEAD
  for hook in pre-commit post-checkout post-index-change; do
    printf '#!/bin/sh\\ntouch ${proof}\\n' >$each/hooks/$hook; chmod 755 $each/hooks/$hook
  done
done
echo '* filter=x diff=x' >.gitattributes
echo 'gitdir: /elsewhere/.git/worktrees/w' >pointer.git
printf '#!/bin/sh\\ntouch ${proof}\\n' >.envrc; echo 'MOORAGE_HOME=/evil' >.env
echo 1 >nested/file; ln -s /etc ext; ln -s ../../../../etc/passwd up; ln -s /etc/shadow nested/secret`;

export interface FolderPlace {
  readonly name: string;
  /** False leaves it to the slow tests. */
  readonly isOrdinary?: boolean;
  /** Its own workspace, that holds nothing else. */
  readonly create: () => Promise<BaseEnvironment>;
}

export function describeFolders({ name, create, isOrdinary = true }: FolderPlace): void {
  describe(`folders in ${name}`, slowUnless(isOrdinary), () => {
    const base = realpathSync(mkdtempSync(join(tmpdir(), "moorage-folders-")));
    let environment: BaseEnvironment;
    let count = 0;
    beforeAll(async () => {
      environment = await create();
      await environment.start();
    });
    afterAll(async () => {
      await environment?.[Symbol.asyncDispose]();
      rmSync(base, { recursive: true, force: true });
    });

    /** Runs a script in the workspace, which must succeed. */
    const shell = async (script: string) => {
      const { exitCode, stderr, stdout } = await environment.exec(script, { output: "separate" });
      expect({ exitCode, stderr }, script).toEqual({ exitCode: 0, stderr: "" });
      return stdout;
    };
    /** A host folder and a state folder of its own, with the workspace emptied. */
    const fresh = async () => {
      count += 1;
      const [host, stateDir] = [join(base, `h${count}`), join(base, `s${count}`)];
      for (const folder of [host, stateDir]) mkdirSync(folder);
      await shell("chmod -R u+rwx . && find . -mindepth 1 -maxdepth 1 -exec rm -rf {} +");
      const sync = (direction: SyncOptions["direction"] = "both", options: Partial<SyncOptions> = {}) =>
        mirror(host, environment, { direction, stateDir, ...options });
      return { host, stateDir, sync };
    };
    const withMoorage = async (stateDir: string, work: (moorage: Moorage) => Promise<void>) => {
      await using moorage = await createMoorage({ environments: { main: environment }, stateDir });
      await work(moorage);
    };

    it("mirror() neither loses an edit nor makes one up, whatever both sides do", async () => {
      const { host, stateDir } = await fresh();
      await checkSyncModel(environment, host, stateDir, { seed: 7, operations: 40 });
    });

    it("mirror() writes nothing outside of the folder, into our state, into .git or through links (SY-02, SY-04, SY-05, SY-20)", async () => {
      const { host, sync } = await fresh();
      const outside = join(base, `outside${count}`);
      mkdirSync(outside);
      writeFileSync(join(outside, "kept"), "host's");
      write(join(host, "f"), "1");
      const stateDir = join(host, ".state");
      await sync("push", { stateDir });
      const proof = join(outside, "proof");
      await shell(`${hostile(proof)}
mkdir .STATE; echo evil >.STATE/plant; ln -s ${outside} cfg; ln f hard; mkdir -p sub/.GIT; echo evil >sub/.GIT/config
ln -s ${outside}/kept through; mkfifo pipe`);
      const report = await sync("both", { stateDir });
      expect(report.conflicts).toEqual([]);
      const skipped = report.skipped.map(({ path }) => path);
      for (const path of [".git/config", "nested/.git/config", "sub/.GIT/config", "pipe"]) {
        expect(skipped).toContain(path);
        expect(existsSync(join(host, path)), path).toBe(false);
      }
      expect(existsSync(join(host, ".STATE"))).toBe(false);
      await shell(
        `rm cfg through; mkdir cfg; echo evil >cfg/authorized_keys; echo evil >through; echo 2 >hard`,
      );
      await sync("both", { stateDir });
      expect(readFileSync(join(host, "cfg/authorized_keys"), "utf8")).toBe("evil\n");
      expect(readFileSync(join(host, "f"), "utf8")).toBe("2\n");
      expect(readdirSync(outside)).toEqual(["kept"]);
      expect(readFileSync(join(outside, "kept"), "utf8")).toBe("host's");
    });

    it("mirror() goes on past what it cannot read, and takes it up later (SY-07)", async ({ skip }) => {
      const { host, sync } = await fresh();
      for (let index = 0; index < 20; index += 1) write(join(host, `f${index}`), String(index));
      await sync();
      const isRoot = (await shell("id -u")).trim() === "0";
      if (isRoot) skip("the account of the environment reads everything");
      await shell("for f in f*; do echo more >>$f; done; chmod 000 f7; chmod 444 f8; chmod 555 .");
      const report = await sync();
      await shell("chmod 755 .");
      expect(report.skipped.map(({ path }) => path)).toEqual(["f7"]);
      expect(report.pulled).toHaveLength(19);
      expect(statSync(join(host, "f8")).mode & 0o777).toBe(0o444);
      await shell("chmod 644 f7 f8; echo again >>f8; chmod 444 f8");
      expect((await sync()).pulled).toEqual(["f7", "f8"]);
      expect(readFileSync(join(host, "f8"), "utf8")).toBe("8more\nagain\n");
      expect(readFileSync(join(host, "f7"), "utf8")).toBe("7more\n");
    });

    it("mirror() that is cut off has done nothing by halves, and its leavings go (SY-11, SY-17)", async () => {
      const { host, sync } = await fresh();
      const large = Buffer.alloc(3_000_000, "large");
      for (let index = 0; index < 5; index += 1) writeFileSync(join(host, `f${index}`), large);
      const controller = new AbortController();
      const broken = sync("push", {
        abortSignal: controller.signal,
        onProgress: ({ fraction }) => {
          if (fraction > 0.5) controller.abort();
        },
      });
      await expect(broken).rejects.toMatchObject({ code: "ABORTED" });
      expect(await pictureOf(environment)).toEqual({});
      expect(await shell("ls -A")).toBe("");
      await shell(
        "mkdir .moorage-stage-0000; echo x >.moorage-stage-0000/0; touch -t 200101010000 .moorage-stage-0000",
      );
      expect((await sync("push")).pushed).toHaveLength(5);
      expect(await shell("ls -A | wc -l")).toMatch(/^\s*5\n$/);
      expect(await pictureOf(environment, 0o777)).toEqual(picture(host, 0o777));
    });

    it("checkpoints run nothing of a hostile workspace, keep nested repositories, and read nothing outside (CP-05, CP-07)", async () => {
      const { stateDir, host } = await fresh();
      const proof = join(base, `proof${count}`);
      await shell(hostile(proof));
      const before = await pictureOf(environment);
      await withMoorage(stateDir, async (moorage) => {
        const result = await moorage.call({
          name: "terminal",
          arguments: { command: "echo 2 >nested/file; rm -rf .git ext nested/.git; echo x >.envrc" },
        });
        if (!result.ok) throw new Error(result.text);
        const id = String(result.content.checkpoint);
        const diff = await moorage.checkpoints.diff(id, environment);
        expect(diff).toContain("nested/file");
        expect(diff).not.toContain("root:");
        const { states } = await moorage.checkpoints.show(id);
        expect(
          states.filter(([path]) => /^(ext|up|nested\/secret)/.test(path)).map(([, { kind }]) => kind),
        ).toEqual(["symlink", "symlink", "symlink"]);
        expect((await moorage.checkpoints.restore(id, environment)).failed).toEqual([]);
      });
      expect(await pictureOf(environment)).toEqual(before);
      expect(existsSync(proof)).toBe(false);
      expect((await environment.exec(["ls", proof])).exitCode).not.toBe(0);
      expect(readdirSync(host)).toEqual([]);
    });

    it("checkpoints bring everything back, odd names and empty folders too, and an undo can be undone (CP-15, CP-17, CP-18)", async () => {
      const { stateDir, host, sync } = await fresh();
      for (const name of ODD_NAMES)
        writeFileSync(Buffer.concat([Buffer.from(`${host}/`), Buffer.from(name, "latin1")]), `odd ${name}`);
      mkdirSync(join(host, "e/f"), { recursive: true });
      symlinkSync("e", join(host, "link"));
      write(join(host, "run"), "#!");
      chmodSync(join(host, "run"), 0o755);
      await sync("push");
      const before = await pictureOf(environment);
      await withMoorage(stateDir, async ({ checkpoints }) => {
        const { id } = await checkpoints.create(environment);
        await shell(
          'for f in ./* ./.[!.]*; do [ ! -f "$f" ] || echo x >>"$f"; done; rm -r e; rm link; mkdir link; chmod 600 run; echo n >link/n',
        );
        const present = await pictureOf(environment);
        const undone = await checkpoints.restore(id, environment, { removeOthers: true });
        expect(undone.failed).toEqual([]);
        expect(await pictureOf(environment)).toEqual(before);
        const redone = await checkpoints.restore(String(undone.undo), environment, { removeOthers: true });
        expect(redone.failed).toEqual([]);
        expect(await pictureOf(environment)).toEqual(present);
        const one = await checkpoints.restore(id, environment, { paths: ["a*b", "-rf"] });
        expect([...one.restored].sort()).toEqual(["-rf", "a*b"]);
        expect(await pictureOf(environment)).toEqual({
          ...present,
          "-rf": before["-rf"],
          "a*b": before["a*b"],
        });
      });
    });

    it("checkpoints tell what they cannot read and keep the rest (CP-10)", async ({ skip }) => {
      const { stateDir } = await fresh();
      const isRoot = (await shell("id -u")).trim() === "0";
      if (isRoot) skip("the account of the environment reads everything");
      await shell("mkdir closed; echo s >closed/s; echo 1 >secret; echo 1 >open; chmod 000 closed secret");
      await withMoorage(stateDir, async ({ checkpoints }) => {
        const { id, skipped } = await checkpoints.create(environment);
        expect(skipped.map(({ path }) => path)).toEqual(["closed", "secret"]);
        await shell("echo 2 >open");
        const report = await checkpoints.restore(id, environment);
        expect(report.restored).toEqual(["open"]);
        expect(report.left).toEqual([{ path: "secret", reason: "its content was not kept" }]);
      });
      await shell("chmod 755 closed; chmod 644 secret");
      expect(await shell("cat closed/s secret open")).toBe("s\n1\n1\n");
    });
  });
}
