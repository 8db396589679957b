/** What files must do through every shell. */
import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import {
  chmodSync,
  chownSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { EnvironmentFiles } from "../../../../environments/base.ts";
import { createFiles } from "../../../../environments/shell/files/files.ts";
import { isMoorageError, type MoorageError } from "../../../../src/errors.ts";
import { createFileShell, type FileShell, type FileShellOptions } from "./file-shell.ts";

/** A user that is not root, for permissions. */
const OTHER_USER = 65_534;

async function refusal(action: Promise<unknown>): Promise<MoorageError> {
  try {
    const value = await action;
    throw new TypeError(`Not refused: ${JSON.stringify(value)}`);
  } catch (error) {
    if (isMoorageError(error)) return error;
    throw error;
  }
}

const code = async (action: Promise<unknown>): Promise<string> => (await refusal(action)).code;
const sha = (bytes: Uint8Array): string => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;

/** Registers what files must do through one shell. */
export function describeFiles(kind: FileShellOptions["kind"]): void {
  describe(`files in ${kind}`, () => {
    let shell: FileShell;
    let nobody: FileShell;
    let root: string;
    let files: EnvironmentFiles;
    let othersFiles: EnvironmentFiles;
    const at = (path: string) => join(root, path);

    beforeAll(async () => {
      root = realpathSync(mkdtempSync(join(tmpdir(), "moorage-files-")));
      mkdirSync(at("home"));
      chmodSync(root, 0o755);
      shell = await createFileShell({ kind, home: at("home"), umask: "022" });
      nobody = await createFileShell({ kind, home: at("home"), uid: OTHER_USER });
      files = createFiles(shell, { workspace: () => root });
      othersFiles = createFiles(nobody, { workspace: () => root });
    });
    afterAll(async () => {
      await shell[Symbol.asyncDispose]();
      await nobody[Symbol.asyncDispose]();
      rmSync(root, { recursive: true, force: true });
    });

    describe("readFile() and writeFile()", () => {
      it("carry every byte", async () => {
        await fc.assert(
          fc.asyncProperty(fc.uint8Array({ maxLength: 300 }), async (data) => {
            await files.writeFile("bytes", data);
            expect(readFileSync(at("bytes")).equals(Buffer.from(data))).toBe(true);
            expect((await files.readFile("bytes")).bytes.equals(Buffer.from(data))).toBe(true);
          }),
          { numRuns: 12 },
        );
      });

      it.each([0, 4_096, 32_768, 32_769, 65_536, 300_000])("carry %i bytes", async (size) => {
        const text = Buffer.from("%s\\n'\"`$x é\r\n".repeat(size / 10 + 1)).subarray(0, size);
        const samples = [randomBytes(size), Buffer.alloc(size), text];
        for (const data of samples) {
          const receipt = await files.writeFile("size", data);
          expect([receipt.hash, receipt.bytesWritten]).toEqual([sha(data), size]);
          const content = await files.readFile("size");
          expect(content.bytes.equals(data)).toBe(true);
          expect({ ...content, bytes: null }).toEqual({
            realPath: at("size"),
            bytes: null,
            size,
            offset: 0,
            hash: sha(data),
            mode: 0o644,
          });
        }
      });

      it.each([
        "-n",
        "--help",
        "a b",
        "it's",
        'q"q',
        "new\nline",
        "end\n",
        "*",
        "[a]",
        "$HOME",
        "\\",
        "é",
        "~",
        ".",
        "`x`",
        "a;b",
      ])("take the name %j", async (name) => {
        const path = name === "." || name === "~" ? `./odd/..${name}` : `odd/${name}`;
        const file = name === "." || name === "~" ? `..${name}` : name;
        await files.writeFile(`odd/${file}`, name);
        expect(readFileSync(at(`odd/${file}`), "utf8")).toBe(name);
        expect((await files.readFile(path === `odd/${name}` ? path : `odd/${file}`)).bytes.toString()).toBe(
          name,
        );
        expect((await files.stat(`odd/${file}`)).size).toBe(Buffer.byteLength(name));
      });

      it("reads ranges from either end", async () => {
        const data = randomBytes(200_000);
        writeFileSync(at("range"), data);
        const range = async (offset: number, maxBytes?: number) =>
          (await files.readFile("range", { offset, ...(maxBytes !== undefined && { maxBytes }) })).bytes;
        expect((await range(0, 10)).equals(data.subarray(0, 10))).toBe(true);
        expect((await range(65_530, 20)).equals(data.subarray(65_530, 65_550))).toBe(true);
        expect((await range(131_072, 68_928)).equals(data.subarray(131_072))).toBe(true);
        expect((await range(-5)).equals(data.subarray(-5))).toBe(true);
        expect((await range(-500_000, 3)).equals(data.subarray(0, 3))).toBe(true);
        expect((await range(199_999)).equals(data.subarray(-1))).toBe(true);
        expect((await range(200_000)).length).toBe(0);
        expect((await range(900_000, 5)).length).toBe(0);
        expect((await range(5, 0)).length).toBe(0);
        const whole = await files.readFile("range", { maxBytes: 300_000 });
        expect([whole.hash, whole.size]).toEqual([sha(data), 200_000]);
      });

      it("refuses a whole file that is too large", async () => {
        execFileSync("/bin/sh", ["-c", `truncate -s 17M ${at("large")}`]);
        expect(await code(files.readFile("large"))).toBe("FILE_TOO_LARGE");
        expect((await files.readFile("large", { maxBytes: 18 * 1024 * 1024 })).bytes.length).toBe(
          17 * 1024 * 1024,
        );
      });

      it("reads kernel files that have content and no size", async () => {
        expect((await files.readFile("/proc/cpuinfo")).bytes.toString()).toContain("processor");
        expect(
          (await files.readFile("/proc/sys/kernel/ostype", { offset: 1, maxBytes: 3 })).bytes.toString(),
        ).toBe("inu");
        expect((await files.readLines("/proc/cpuinfo", { limit: 1 })).bytes.toString()).toContain(
          "processor",
        );
      });
    });

    describe("paths", () => {
      it("start at the workspace, the cwd or the home", async () => {
        await files.writeFile("~/in-home", "h");
        await files.writeFile("sub/x", "s");
        await files.writeFile("y", "y", { cwd: "sub" });
        await files.writeFile("./~", "tilde");
        await files.writeFile("~root", "named");
        expect(readFileSync(at("home/in-home"), "utf8")).toBe("h");
        expect((await files.readFile("x", { cwd: at("sub") })).realPath).toBe(at("sub/x"));
        expect(readFileSync(at("sub/y"), "utf8")).toBe("y");
        expect(readFileSync(at("~"), "utf8")).toBe("tilde");
        expect(readFileSync(at("~root"), "utf8")).toBe("named");
        expect(await files.realPath("~")).toBe(at("home"));
        expect(await files.realPath("in-home", { cwd: "~" })).toBe(at("home/in-home"));
      });

      it.each(["", "a\0b", "file:///etc/passwd", "https://x/y", "\ud800"])("refuse %j", async (path) => {
        expect(await code(files.readFile(path))).toBe("PATH_INVALID");
        expect(await code(files.writeFile(path, ""))).toBe("PATH_INVALID");
      });

      it("tell what is wrong (FT-40)", async () => {
        writeFileSync(at("plain"), "");
        expect(await refusal(files.readFile("sub"))).toMatchObject({
          code: "FILE_IS_DIRECTORY",
          message: 'Cannot read "sub": is a directory',
        });
        expect(await code(files.writeFile("sub", ""))).toBe("FILE_IS_DIRECTORY");
        expect(await code(files.writeFile("new/", ""))).toBe("FILE_IS_DIRECTORY");
        expect(await code(files.readFile("plain/x"))).toBe("NOT_A_DIRECTORY");
        expect(await code(files.readFile("plain/"))).toBe("NOT_A_DIRECTORY");
        expect(await code(files.writeFile("plain/x/y", ""))).toBe("NOT_A_DIRECTORY");
        expect(await code(files.readFile("no/such"))).toBe("FILE_MISSING");
        expect(await code(files.readFile("n".repeat(300)))).toBe("NAME_TOO_LONG");
        expect(await code(files.writeFile("n".repeat(300), ""))).toBe("NAME_TOO_LONG");
        expect(await code(files.readFile("d/".repeat(2_100)))).toBe("NAME_TOO_LONG");
      });

      it("are resolved inside the environment (FT-26)", async () => {
        symlinkSync("/etc", at("etc-link"));
        symlinkSync("etc-link", at("chain"));
        symlinkSync("missing/target", at("dangling"));
        symlinkSync("loop", at("loop"));
        expect(await files.realPath("chain/passwd")).toBe("/etc/passwd");
        expect(await files.realPath("chain/../passwd")).toBe("/passwd");
        expect(await files.realPath("/proc/self/root/etc/passwd")).toBe("/etc/passwd");
        expect(await files.realPath("//etc//./passwd")).toBe("/etc/passwd");
        expect(await files.realPath("dangling")).toBe(at("missing/target"));
        expect(await files.realPath("none/../../up/x")).toBe(join(root, "../up/x"));
        expect(await files.realPath("/")).toBe("/");
        expect(await files.realPath("sub/")).toBe(at("sub"));
        expect((await files.readFile("etc-link/passwd")).realPath).toBe("/etc/passwd");
        expect(await code(files.readFile("loop"))).toBe("PATH_INVALID");
        expect(await code(files.writeFile("loop/x", ""))).toBe("PATH_INVALID");
      });
    });

    describe("writeFile()", () => {
      it("makes parents and gives new files 0666 minus umask", async () => {
        expect(await files.writeFile("made/a/b", "x")).toMatchObject({
          realPath: at("made/a/b"),
          created: true,
        });
        expect(statSync(at("made/a/b")).mode & 0o7777).toBe(0o644);
        expect(statSync(at("made/a")).mode & 0o7777).toBe(0o755);
        await files.writeFile("made/mode", "x", { mode: 0o700 });
        expect(statSync(at("made/mode")).mode & 0o7777).toBe(0o700);
      });

      it.each([0o755, 0o600, 0o664, 0o444, 0o4755, 0o640, 0o070])(
        "keeps mode %o, owner and group (FT-23)",
        async (mode) => {
          writeFileSync(at("kept"), "x");
          chownSync(at("kept"), 1234, 4321);
          chmodSync(at("kept"), mode);
          expect((await files.writeFile("kept", "new")).created).toBe(false);
          const { uid, gid, mode: after } = statSync(at("kept"));
          expect([uid, gid, after & 0o7777]).toEqual([1234, 4321, mode]);
          chownSync(at("kept"), 0, 0);
          chmodSync(at("kept"), mode);
          await files.writeFile("kept", "newer");
          expect(statSync(at("kept")).mode & 0o7777).toBe(mode);
          rmSync(at("kept"));
        },
      );

      it("writes through links, keeping them (FT-25, DK-31)", async () => {
        mkdirSync(at("real-dir"), { recursive: true });
        writeFileSync(at("real-dir/real.cfg"), "old");
        linkSync(at("real-dir/real.cfg"), at("hard"));
        symlinkSync("real-dir/real.cfg", at("cfg"));
        symlinkSync("cfg", at("cfg2"));
        symlinkSync("real-dir", at("dir-link"));
        symlinkSync("fresh/made.cfg", at("to-make"));
        expect(await files.writeFile("cfg2", "new")).toMatchObject({
          realPath: at("real-dir/real.cfg"),
          created: false,
        });
        await files.writeFile("dir-link/other", "x");
        await files.writeFile("to-make", "made");
        expect(readlinkSync(at("cfg"))).toBe("real-dir/real.cfg");
        expect(lstatSync(at("dir-link")).isSymbolicLink()).toBe(true);
        expect(readFileSync(at("cfg"), "utf8")).toBe("new");
        expect(readFileSync(at("hard"), "utf8")).toBe("old");
        expect(readFileSync(at("fresh/made.cfg"), "utf8")).toBe("made");
        expect(readFileSync(at("real-dir/other"), "utf8")).toBe("x");
      });

      it("leaves planted links and no litter (FT-28)", async () => {
        mkdirSync(at("planted"));
        writeFileSync(at("victim"), "victim");
        for (const name of [".f.tmp", "f.tmp", ".f.tmp-1", "f~", ".moorage-"])
          symlinkSync("../victim", at(`planted/${name}`));
        const before = readdirSync(at("planted"));
        await files.writeFile("planted/f", "x");
        expect(await code(files.writeFile("planted/f", "y", { expectedHash: "sha256:0" }))).toBe(
          "FILE_CHANGED",
        );
        expect(await code(files.writeFile("planted/f/g", "y"))).toBe("NOT_A_DIRECTORY");
        expect(readdirSync(at("planted")).toSorted()).toEqual([...before, "f"].toSorted());
        expect(readFileSync(at("victim"), "utf8")).toBe("victim");
      });

      it("compares before it swaps", async () => {
        const first = await files.writeFile("cas", "one");
        const second = await files.writeFile("cas", "two", { expectedHash: first.hash });
        expect(await code(files.writeFile("cas", "three", { expectedHash: first.hash }))).toBe(
          "FILE_CHANGED",
        );
        expect(await code(files.writeFile("cas", "three", { expectedHash: "absent" }))).toBe("FILE_CHANGED");
        expect(await code(files.writeFile("cas-none", "x", { expectedHash: second.hash }))).toBe(
          "FILE_CHANGED",
        );
        expect(readFileSync(at("cas"), "utf8")).toBe("two");
        expect((await files.writeFile("cas-new", "x", { expectedHash: "absent" })).created).toBe(true);
        expect(statSync(at("cas-new")).nlink).toBe(1);
      });

      it("lets one of many concurrent creators win", async () => {
        const results = await Promise.allSettled(
          Array.from({ length: 6 }, (_, index) =>
            files.writeFile("race", String(index), { expectedHash: "absent" }),
          ),
        );
        expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
      });

      it("gives the replaced content when asked", async () => {
        const data = Buffer.from([0, 255, 10, 61, 45]);
        writeFileSync(at("previous"), data);
        const large = randomBytes(90_000);
        expect(
          (await files.writeFile("previous", large, { previousMaxBytes: 5 })).previous?.equals(data),
        ).toBe(true);
        expect((await files.writeFile("previous", "", { previousMaxBytes: 89_999 })).previous).toBe(null);
        expect((await files.writeFile("previous", "x", { previousMaxBytes: 1 })).previous?.length).toBe(0);
        expect((await files.writeFile("previous-new", "x", { previousMaxBytes: 1 })).previous).toBe(null);
        expect("previous" in (await files.writeFile("previous", "x"))).toBe(false);
      });

      it("tells a limit on the size of files, and leaves the old content", async () => {
        const small = await createFileShell({ kind, home: root, fileBlocks: 16 });
        const limited = createFiles(small, { workspace: () => root });
        mkdirSync(at("limited"));
        writeFileSync(at("limited/f"), "old");
        for (const data of ["x".repeat(30_000), Buffer.alloc(30_000), randomBytes(100_000)]) {
          expect(await code(limited.writeFile("limited/f", data))).toBe("STORAGE_FULL");
        }
        expect([readFileSync(at("limited/f"), "utf8"), readdirSync(at("limited"))]).toEqual(["old", ["f"]]);
        await small[Symbol.asyncDispose]();
      });

      it("refuses text that UTF-8 cannot express", async () => {
        expect(await code(files.writeFile("surrogate", "a\ud800"))).toBe("INVALID_ARGUMENTS");
      });
    });

    it("refuses what is no regular file, at once (FT-29, FT-30)", async () => {
      mkdirSync(at("special"));
      execFileSync("mkfifo", [at("special/pipe")]);
      symlinkSync("/dev/zero", at("special/zero"));
      symlinkSync("pipe", at("special/to-pipe"));
      const server = createServer();
      await new Promise<void>((resolve) => server.listen(at("special/socket"), resolve));
      const paths = [
        ...["special/pipe", "special/zero", "special/to-pipe", "special/socket"],
        ...[
          "/dev/zero",
          "/dev/tty",
          "/dev/stdin",
          "/proc/kmsg",
          "/dev/fd/0",
          "/proc/self/fd/1",
          "/proc/kcore",
          "/proc/self/mem",
        ],
      ];
      for (const path of paths) {
        const started = performance.now();
        expect([path, await code(files.readFile(path))]).toEqual([path, "FILE_NOT_REGULAR"]);
        expect([path, await code(files.readLines(path))]).toEqual([path, "FILE_NOT_REGULAR"]);
        expect([path, await code(files.writeFile(path, "x"))]).toEqual([path, "FILE_NOT_REGULAR"]);
        expect(performance.now() - started).toBeLessThan(2_000 * 3);
      }
      await new Promise((resolve) => server.close(resolve));
    });

    it("tells what a user may not do, by the path asked for (FT-27)", async () => {
      mkdirSync(at("closed"));
      writeFileSync(at("closed/file"), "secret", { mode: 0o600 });
      writeFileSync(at("closed/open"), "open", { mode: 0o644 });
      const messages = [
        await refusal(othersFiles.writeFile("closed/new", "x")),
        await refusal(othersFiles.readFile("closed/file")),
        await refusal(othersFiles.writeFile("closed/deep/er/new", "x")),
        await refusal(othersFiles.writeFile("closed/open", "x")),
        await refusal(othersFiles.remove("closed/open")),
        await refusal(othersFiles.mkdir("closed/folder")),
        await refusal(othersFiles.rename("closed/open", "closed/moved")),
      ];
      for (const { code: found, message } of messages) {
        expect([found, message]).toEqual(["FILE_PERMISSION", expect.stringContaining("permission denied")]);
        expect(message).toContain('"closed/');
        expect(message).not.toContain(".moorage-");
      }
      chmodSync(at("closed"), 0o700);
      expect(await code(othersFiles.readFile("closed/open"))).toBe("FILE_PERMISSION");
      expect(await code(othersFiles.realPath("closed/open"))).toBe("FILE_PERMISSION");
      mkdirSync(at("theirs"));
      chownSync(at("theirs"), OTHER_USER, OTHER_USER);
      writeFileSync(at("theirs/roots"), "x", { mode: 0o666 });
      chmodSync(at("theirs/roots"), 0o666);
      expect((await refusal(othersFiles.writeFile("theirs/roots", "y"))).message).toContain(
        "owner or group could not be kept",
      );
      writeFileSync(at("theirs/readonly"), "x");
      chownSync(at("theirs/readonly"), OTHER_USER, OTHER_USER);
      chmodSync(at("theirs/readonly"), 0o444);
      expect(await code(othersFiles.writeFile("theirs/readonly", "y"))).toBe("FILE_PERMISSION");
      await othersFiles.writeFile("theirs/mine/new", "z");
      expect(statSync(at("theirs/mine/new")).uid).toBe(OTHER_USER);
      expect(readdirSync(at("theirs")).toSorted()).toEqual(["mine", "readonly", "roots"]);
    });

    describe("readLines()", () => {
      it("counts a last line without newline", async () => {
        const lines = async (content: string, options = {}) => {
          writeFileSync(at("lines"), content);
          const { bytes, firstLine, totalLines, truncated } = await files.readLines("lines", options);
          return [bytes.toString(), firstLine, totalLines, truncated];
        };
        expect(await lines("")).toEqual(["", 1, 0, false]);
        expect(await lines("a\nb")).toEqual(["a\nb", 1, 2, false]);
        expect(await lines("a\nb\nc\n", { offset: 2, limit: 1 })).toEqual(["b\n", 2, 3, false]);
        expect(await lines("a\nb\nc\n", { offset: -2 })).toEqual(["b\nc\n", 2, 3, false]);
        expect(await lines("a\nb\nc\n", { offset: 9 })).toEqual(["", 9, 3, false]);
        expect(await lines("a\nb\nc\n", { offset: -9, limit: 1 })).toEqual(["a\n", 1, 3, false]);
        expect(await lines("aa\nbb\ncc\n", { maxBytes: 7 })).toEqual(["aa\nbb\n", 1, 3, true]);
        expect(await lines("aaaaaa", { maxBytes: 3 })).toEqual(["aaa", 1, 1, true]);
      });

      it("reads large files alike", async () => {
        execFileSync("/bin/sh", [
          "-c",
          `seq 1 200000 | tr '\\n' '\\n' >${at("seq")}; printf end >>${at("seq")}`,
        ]);
        const content = readFileSync(at("seq"));
        const lines = async (options: object) => {
          const { bytes, ...rest } = await files.readLines("seq", options);
          return { text: bytes.toString(), ...rest };
        };
        const common = {
          realPath: at("seq"),
          totalLines: 200_001,
          size: content.length,
          hash: sha(content),
        };
        expect(await lines({ offset: 150_000, limit: 2 })).toEqual({
          ...common,
          text: "150000\n150001\n",
          firstLine: 150_000,
          truncated: false,
        });
        expect(await lines({ offset: -2 })).toEqual({
          ...common,
          text: "200000\nend",
          firstLine: 200_000,
          truncated: false,
        });
        expect(await lines({ limit: 5, maxBytes: 5 })).toEqual({
          ...common,
          text: "1\n2\n",
          firstLine: 1,
          truncated: true,
        });
      });

      it("counts from the end alike where the lines lie in the last blocks and where not", async () => {
        for (const ending of ["\n", ""]) {
          const all = Array.from({ length: 60_000 }, (_, index) => `line ${index + 1}`);
          writeFileSync(at("ends"), all.join("\n") + ending);
          for (const back of [1, 2, 700, 20_000, 55_000, 60_000, 70_000]) {
            const got = await files.readLines("ends", { offset: -back, limit: 3, maxBytes: 1_000 });
            const from = Math.max(0, 60_000 - back);
            const text = all.slice(from, from + 3).join("\n") + (from + 3 < 60_000 ? "\n" : ending);
            expect([back, got.firstLine, got.totalLines, got.bytes.toString()]).toEqual([
              back,
              from + 1,
              60_000,
              text,
            ]);
          }
        }
      });

      it("reads a 3 GB file in flat memory (FT-34)", { tags: ["slow"] }, async () => {
        execFileSync("/bin/sh", [
          "-c",
          `truncate -s 3G ${at("huge")}; printf '\\nlast one\\n' >>${at("huge")}`,
        ]);
        const before = process.memoryUsage().rss;
        const last = await files.readLines("huge", { offset: -1 });
        await expect(files.readLines("huge", { offset: 1, limit: 5 })).rejects.toMatchObject({
          code: "FILE_BINARY",
        });
        writeFileSync(at("log"), "x".repeat(1024 ** 2));
        execFileSync("/bin/sh", ["-c", `truncate -s 300M ${at("log")}`]);
        const first = await files.readLines("log", { offset: 1, limit: 5, maxBytes: 1_000 });
        const range = await files.readFile("huge", { offset: 3 * 1024 ** 3, maxBytes: 5 });
        expect([last.bytes.toString(), last.totalLines, last.hash]).toEqual(["last one\n", 2, null]);
        expect([first.bytes.length, first.truncated]).toEqual([1_000, true]);
        expect(range.bytes.toString()).toBe("\nlast");
        expect(process.memoryUsage().rss - before).toBeLessThan(200 * 1024 * 1024);
        rmSync(at("huge"));
        rmSync(at("log"));
      });
    });

    it("stat() and list() tell what is there", async () => {
      mkdirSync(at("listed"));
      writeFileSync(at("listed/file"), "12345", { mode: 0o640 });
      writeFileSync(at("listed/.hidden"), "");
      writeFileSync(at("listed/new\nline"), "");
      writeFileSync(at("listed/-n *"), "");
      mkdirSync(at("listed/folder"));
      execFileSync("mkfifo", [at("listed/pipe")]);
      symlinkSync("fi\nle", at("listed/link\n"));
      symlinkSync("file", at("listed/good"));
      const entries = await files.list("listed");
      expect(entries.map(({ name, kind, linkTarget }) => [name, kind, linkTarget])).toEqual([
        ["-n *", "file", undefined],
        [".hidden", "file", undefined],
        ["file", "file", undefined],
        ["folder", "directory", undefined],
        ["good", "symlink", "file"],
        ["link\n", "symlink", "fi\nle"],
        ["new\nline", "file", undefined],
        ["pipe", "fifo", undefined],
      ]);
      const real = statSync(at("listed/file"));
      const status = await files.stat("listed/good");
      expect({ ...status, modifiedAt: 0 }).toEqual({
        kind: "file",
        size: 5,
        mode: 0o640,
        uid: real.uid,
        gid: real.gid,
        modifiedAt: 0,
        inode: String(real.ino),
      });
      expect(Math.abs(status.modifiedAt - real.mtimeMs)).toBeLessThan(1_001);
      expect(await files.stat("listed/good", { follow: false })).toMatchObject({
        kind: "symlink",
        linkTarget: "file",
      });
      expect((await files.stat("/dev/null")).kind).toBe("device");
      expect(await files.list("listed/folder")).toEqual([]);
      expect(await code(files.list("listed/file"))).toBe("NOT_A_DIRECTORY");
      expect(await code(files.list("listed/none"))).toBe("FILE_MISSING");
      expect(await code(files.stat("listed/none"))).toBe("FILE_MISSING");
    });

    it("remove(), rename() and mkdir() do one thing", async () => {
      await files.mkdir("ops/a/b", { mode: 0o700 });
      await files.mkdir("ops/a/b");
      expect(statSync(at("ops/a/b")).mode & 0o777).toBe(0o700);
      writeFileSync(at("ops/f"), "f");
      symlinkSync("f", at("ops/l"));
      symlinkSync("a", at("ops/dl"));
      expect(await code(files.mkdir("ops/f"))).toBe("FILE_EXISTS");
      expect(await refusal(files.rename("ops/f", "ops/l"))).toMatchObject({
        code: "FILE_EXISTS",
        message: 'Cannot rename "ops/f" to "ops/l": it exists',
      });
      expect(await code(files.rename("ops/f", "ops/a", { replace: true }))).toBe("FILE_IS_DIRECTORY");
      expect(await code(files.rename("ops/none", "ops/x"))).toBe("FILE_MISSING");
      await files.rename("ops/f", "ops/new/deep/f");
      await files.rename("ops/new/deep/f", "ops/new/../f");
      await files.rename("ops/f", "ops/l", { replace: true });
      expect(readFileSync(at("ops/l"), "utf8")).toBe("f");
      expect(lstatSync(at("ops/l")).isFile()).toBe(true);
      await files.remove("ops/dl");
      expect(await code(files.remove("ops/a"))).toBe("FILE_IS_DIRECTORY");
      expect(await code(files.remove("ops/none"))).toBe("FILE_MISSING");
      await files.remove("ops/a/b");
      await files.remove("ops/new", { recursive: true });
      await files.remove("ops/l");
      expect(readdirSync(at("ops"))).toEqual(["a"]);
    });

    describe("apply()", () => {
      const tree = () =>
        execFileSync("/bin/sh", ["-c", "find . | sort; cat ./* 2>/dev/null; :"], {
          cwd: at("set"),
          encoding: "utf8",
        });
      const start = () => {
        rmSync(at("set"), { recursive: true, force: true });
        mkdirSync(at("set"));
        for (const name of ["a", "b", "c"]) writeFileSync(at(`set/${name}`), name, { mode: 0o750 });
      };

      it("makes all changes in order and leaves no litter", async () => {
        start();
        const receipts = await files.apply(
          [
            { kind: "write", path: "a", bytes: Buffer.from("A") },
            { kind: "remove", path: "b", expectedHash: sha(Buffer.from("b")) },
            { kind: "write", path: "b", bytes: Buffer.from("B") },
            { kind: "rename", from: "c", to: "d/c" },
            {
              kind: "write",
              path: "d/c",
              bytes: Buffer.from("C"),
              options: { expectedHash: sha(Buffer.from("c")) },
            },
          ],
          { cwd: "set" },
        );
        expect(receipts.map(({ realPath, created }) => [realPath, created])).toEqual([
          [at("set/a"), false],
          [at("set/b"), true],
          [at("set/d/c"), false],
        ]);
        expect(tree()).toBe(".\n./a\n./b\n./d\n./d/c\nAB");
        expect(statSync(at("set/d/c")).mode & 0o777).toBe(0o750);
      });

      it("takes everything back when one change fails", async () => {
        start();
        const before = tree();
        const inode = statSync(at("set/a")).ino;
        const failing: Parameters<EnvironmentFiles["apply"]>[0][] = [
          [{ kind: "write", path: "a", bytes: Buffer.from("x"), options: { expectedHash: "sha256:0" } }],
          [{ kind: "remove", path: "none" }],
          [{ kind: "remove", path: "b", expectedHash: "sha256:0" }],
          [{ kind: "rename", from: "a", to: "b" }],
          [{ kind: "write", path: "a/x", bytes: Buffer.from("x") }],
        ];
        for (const last of failing) {
          const action = files.apply(
            [
              { kind: "write", path: "new/deep/file", bytes: Buffer.from("n") },
              { kind: "write", path: "a", bytes: Buffer.from("1") },
              { kind: "write", path: "a", bytes: Buffer.from("2") },
              { kind: "rename", from: "c", to: "moved/c" },
              { kind: "remove", path: "b" },
              { kind: "write", path: "b", bytes: Buffer.from("3") },
              ...last,
            ],
            { cwd: "set" },
          );
          await refusal(action);
          expect(tree()).toBe(before);
          expect(statSync(at("set/a")).ino).toBe(inode);
        }
      });
    });
  });
}
