/** Reading and looking: bytes, ranges, lines, kinds, names, and what must be refused. */
import { createHash } from "node:crypto";
import { expect } from "vitest";
import type { FileStat } from "../../environments/base.ts";
import { limits } from "../../src/limits.ts";
import { type Cases, expectCode, isRoot, pseudoRandom, scratch } from "./support.ts";

const hashOf = (bytes: Uint8Array | string): string =>
  `sha256:${createHash("sha256").update(bytes).digest("hex")}`;

/** Names that break programs which take a name for something else. */
const ODD_NAMES = [
  "a b",
  "-rf",
  "--",
  "new\nline",
  "end\n",
  "q'uo\"te",
  "$HOME",
  "`id`",
  "*?[x]",
  "\\",
  "~",
  "ünï漢😀",
  "tab\t",
  "\x01\x1b",
  ".hidden",
  "…",
  "%s%d",
  "a:2:b",
];

/** Special files must be refused within this, milliseconds, on a loaded machine. */
const SOON_MS = 5_000;

const statOf = (expected: Partial<FileStat>): FileStat => ({
  kind: "file",
  size: 0,
  mode: 0o644,
  uid: expect.any(Number),
  gid: expect.any(Number),
  modifiedAt: expect.any(Number),
  inode: expect.stringMatching(/^\d+$/),
  ...expected,
});

export const files = {
  "readFile() gives the bytes, their size, mode and hash": async ({ environment }) => {
    const folder = await scratch(environment);
    const bytes = pseudoRandom(100_000, 11);
    await environment.exec(`cat > ${folder}/f; chmod 640 ${folder}/f`, { stdin: bytes });
    expect(await environment.files.readFile(`${folder}/f`)).toEqual({
      realPath: `${folder}/f`,
      bytes,
      size: 100_000,
      offset: 0,
      hash: hashOf(bytes),
      mode: 0o640,
    });
  },
  "readFile() reads an empty file": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec(`: > ${folder}/f`);
    expect(await environment.files.readFile(`${folder}/f`)).toMatchObject({
      size: 0,
      offset: 0,
      hash: hashOf(""),
      bytes: Buffer.alloc(0),
    });
  },
  "a file of any bytes is read as it was written, with sizes around those that are read at once": async ({
    environment,
  }) => {
    const folder = await scratch(environment);
    const fillings: Readonly<Record<string, Buffer>> = {
      lines: Buffer.from("0123456789abcde\n"),
      "no NUL": Buffer.from(Array.from({ length: 255 }, (_, index) => index + 1)),
      any: Buffer.from(Array.from({ length: 256 }, (_, index) => index)),
    };
    for (const [name, filling] of Object.entries(fillings)) {
      for (const size of [1, 4_095, 4_096, 4_097, 6_000, 32_768, 65_536, 65_537]) {
        const path = `${folder}/${name}`;
        const bytes = Buffer.alloc(size, filling);
        await environment.files.writeFile(path, bytes);
        const lines = await environment.files.readLines(path, { limit: 65_537, maxBytes: 65_537 });
        expect(lines.bytes.equals(bytes), `${size} bytes of ${name}`).toBe(true);
        expect(lines.realPath).toBe(path);
        const { previous } = await environment.files.writeFile(path, "next", { previousMaxBytes: 65_537 });
        expect(previous && bytes.equals(previous), `${size} bytes of ${name} before a write`).toBe(true);
      }
    }
  },
  "readFile() reads a range, from the start or from the end": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.files.writeFile(`${folder}/f`, "0123456789");
    const read = async (options: { offset?: number; maxBytes?: number }) => {
      const { bytes, offset, size, hash } = await environment.files.readFile(`${folder}/f`, options);
      return [bytes.toString(), offset, size, hash === null];
    };
    expect(await read({ offset: 3, maxBytes: 4 })).toEqual(["3456", 3, 10, true]);
    expect(await read({ offset: -3 })).toEqual(["789", 7, 10, true]);
    expect(await read({ offset: 8, maxBytes: 100 })).toEqual(["89", 8, 10, true]);
    expect((await read({ offset: 100 }))[0]).toBe("");
    expect((await read({ offset: -100 }))[0]).toBe("0123456789");
    expect((await read({ maxBytes: 0 }))[0]).toBe("");
  },
  "relative paths start at the workspace or at the folder given, `~` is home": async ({ environment }) => {
    const folder = await scratch(environment);
    const name = folder.slice(folder.lastIndexOf("/") + 1);
    await environment.files.writeFile(`${folder}/f`, "x");
    expect((await environment.files.readFile(`${name}/f`)).realPath).toBe(`${folder}/f`);
    expect((await environment.files.readFile("f", { cwd: folder })).realPath).toBe(`${folder}/f`);
    expect((await environment.files.readFile(`../${name}/./f`, { cwd: folder })).realPath).toBe(
      `${folder}/f`,
    );
    const home = (await environment.exec('cd "$HOME" && pwd -P')).output.trim();
    expect(await environment.files.realPath("~")).toBe(home);
    expect(await environment.files.realPath("~/not-there")).toBe(`${home.replace(/\/$/, "")}/not-there`);
    await environment.files.writeFile("./~", "tilde", { cwd: folder });
    expect((await environment.files.list(folder)).map((entry) => entry.name).sort()).toEqual(["f", "~"]);
  },
  "odd names are names like others": async ({ environment }) => {
    const folder = await scratch(environment);
    for (const name of ODD_NAMES) {
      const path = `${folder}/${name}`;
      await environment.files.writeFile(path, `in ${name}`);
      expect((await environment.files.readFile(path)).bytes.toString()).toBe(`in ${name}`);
      expect(await environment.files.stat(path)).toMatchObject({ kind: "file" });
      expect((await environment.files.readLines(path)).realPath).toBe(path);
    }
    expect((await environment.files.list(folder)).map(({ name }) => name).sort()).toEqual(
      [...ODD_NAMES].sort(),
    );
    for (const name of ODD_NAMES) {
      await environment.files.rename(`${folder}/${name}`, `${folder}/-moved ${name}`);
      await environment.files.remove(`${folder}/-moved ${name}`);
      await environment.files.mkdir(`${folder}/${name}/inner`);
      await environment.files.writeFile(`${folder}/${name}/inner/f`, "x");
      expect(await environment.files.realPath(`${folder}/${name}/inner/f`)).toBe(`${folder}/${name}/inner/f`);
      await environment.files.remove(`${folder}/${name}`, { recursive: true });
    }
    expect(await environment.files.list(folder)).toEqual([]);
  },
  "missing files are told as missing": async ({ environment }) => {
    const folder = await scratch(environment);
    const path = `${folder}/none`;
    const { files } = environment;
    for (const ask of [
      () => files.readFile(path),
      () => files.readLines(path),
      () => files.stat(path),
      () => files.list(path),
      () => files.remove(path),
      () => files.rename(path, `${path}2`),
      () => files.readFile(`${path}/deeper`),
    ]) {
      expect(await expectCode(ask(), "FILE_MISSING")).toContain(path);
    }
  },
  "a folder in place of a file, and a file in place of a folder, are told": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.files.writeFile(`${folder}/f`, "x");
    const { files } = environment;
    await expectCode(files.readFile(folder), "FILE_IS_DIRECTORY");
    await expectCode(files.readLines(folder), "FILE_IS_DIRECTORY");
    await expectCode(files.writeFile(folder, "x"), "FILE_IS_DIRECTORY");
    await expectCode(files.list(`${folder}/f`), "NOT_A_DIRECTORY");
    await expectCode(files.readFile(`${folder}/f/g`), "NOT_A_DIRECTORY");
    await expectCode(files.writeFile(`${folder}/f/g`, "x"), "NOT_A_DIRECTORY");
    await expectCode(files.mkdir(`${folder}/f`), "FILE_EXISTS", "NOT_A_DIRECTORY");
    await expectCode(files.mkdir(`${folder}/f/g`), "NOT_A_DIRECTORY");
  },
  "pipes are refused soon, for reading and writing (FT-29)": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec(`mkfifo ${folder}/p; ln -s p ${folder}/link`);
    const before = performance.now();
    for (const path of [`${folder}/p`, `${folder}/link`]) {
      await expectCode(environment.files.readFile(path), "FILE_NOT_REGULAR");
      await expectCode(environment.files.readLines(path), "FILE_NOT_REGULAR");
      await expectCode(environment.files.writeFile(path, "x"), "FILE_NOT_REGULAR");
    }
    expect(performance.now() - before).toBeLessThan(SOON_MS);
    expect(await environment.files.stat(`${folder}/p`)).toMatchObject({ kind: "fifo" });
  },
  "devices are refused soon (FT-30)": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec(`ln -s /dev/zero ${folder}/zero`);
    const before = performance.now();
    for (const path of [
      "/dev/zero",
      "/dev/null",
      "/dev/tty",
      "/dev/stdin",
      "/dev/fd/0",
      "/dev/random",
      `${folder}/zero`,
    ]) {
      const outcome = environment.files.readFile(path);
      await expectCode(outcome, "FILE_NOT_REGULAR", "FILE_MISSING", "FILE_PERMISSION");
    }
    await expectCode(environment.files.writeFile("/dev/null", "x"), "FILE_NOT_REGULAR");
    await expectCode(environment.files.readFile("/dev/zero"), "FILE_NOT_REGULAR");
    expect(performance.now() - before).toBeLessThan(2 * SOON_MS);
    expect(await environment.files.stat("/dev/null")).toMatchObject({ kind: "device" });
  },
  "files of the kernel that block are answered soon (FT-30)": async ({ environment }) => {
    const before = performance.now();
    for (const path of ["/proc/kmsg", "/proc/self/fd/0"]) {
      await environment.files.readFile(path, { maxBytes: 100 }).then(
        ({ bytes }) => expect(bytes.length).toBeLessThanOrEqual(100),
        (error: unknown) =>
          expectCode(
            Promise.reject(error),
            "FILE_NOT_REGULAR",
            "FILE_PERMISSION",
            "FILE_MISSING",
            "PATH_DENIED",
            "TOOL_TIMEOUT",
          ),
      );
    }
    expect(performance.now() - before).toBeLessThan(SOON_MS);
  },
  "links are followed for reading, and told by stat when asked": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec(
      "echo x > real; ln -s real one; ln -s one two; ln -s nowhere dangling; ln -s loop loop; mkdir d; ln -s ../real d/up",
      { cwd: folder },
    );
    expect(await environment.files.readFile(`${folder}/two`)).toMatchObject({
      realPath: `${folder}/real`,
      size: 2,
    });
    expect((await environment.files.readLines(`${folder}/d/up`)).realPath).toBe(`${folder}/real`);
    expect(await environment.files.stat(`${folder}/two`)).toMatchObject({ kind: "file", size: 2 });
    expect(await environment.files.stat(`${folder}/two`, { follow: false })).toMatchObject({
      kind: "symlink",
      linkTarget: "one",
    });
    expect(await environment.files.stat(`${folder}/dangling`, { follow: false })).toMatchObject({
      kind: "symlink",
      linkTarget: "nowhere",
    });
    await expectCode(environment.files.stat(`${folder}/dangling`), "FILE_MISSING");
    await expectCode(
      environment.files.readFile(`${folder}/loop`),
      "FILE_MISSING",
      "PATH_INVALID",
      "FILE_NOT_REGULAR",
    );
  },
  "realPath() resolves links and allows a missing last part": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec("mkdir d; ln -s d link; ln -s /etc out; ln -s d/new dangling", { cwd: folder });
    expect(await environment.files.realPath(`${folder}/link/../link/new`)).toBe(`${folder}/d/new`);
    expect(await environment.files.realPath("link", { cwd: folder })).toBe(`${folder}/d`);
    expect(await environment.files.realPath(`${folder}/out/passwd`)).toBe("/etc/passwd");
    expect(await environment.files.realPath(`${folder}/dangling`)).toBe(`${folder}/d/new`);
    expect(await environment.files.realPath("/")).toBe("/");
    expect(await environment.files.realPath(`${folder}/d/../../..//etc/./passwd`)).toMatch(/\/etc\/passwd$/);
  },
  "stat() tells kind, size, mode, owner and time": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec(
      "printf 12345 > f; chmod 4751 f; mkdir -m 1777 d; touch -t 200102030405.06 f; ln f hard",
      { cwd: folder },
    );
    const file = await environment.files.stat(`${folder}/f`);
    expect(file).toEqual(statOf({ size: 5, mode: 0o4751 }));
    const seconds = Number((await environment.exec(`stat -c %Y ${folder}/f`)).output);
    expect(Math.floor(file.modifiedAt / 1000)).toBe(seconds);
    expect((await environment.files.stat(`${folder}/hard`)).inode).toBe(file.inode);
    expect(await environment.files.stat(`${folder}/d`)).toMatchObject({ kind: "directory", mode: 0o1777 });
    expect(`${file.uid} ${file.gid}`).toBe(
      (await environment.exec(`stat -c '%u %g' ${folder}/f`)).output.trim(),
    );
  },
  "list() gives every entry with its kind": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec("printf 123 > .dot; mkdir d; mkfifo p; ln -s .dot l", { cwd: folder });
    const entries = [...(await environment.files.list(folder))].sort((a, b) => (a.name < b.name ? -1 : 1));
    expect(entries).toMatchObject([
      { name: ".dot", kind: "file", size: 3 },
      { name: "d", kind: "directory" },
      { name: "l", kind: "symlink", linkTarget: ".dot" },
      { name: "p", kind: "fifo" },
    ]);
  },
  "list() gives 2,000 entries": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec("i=0; while [ $i -lt 2000 ]; do : > file-$i; i=$((i+1)); done", { cwd: folder });
    expect((await environment.files.list(folder)).length).toBe(2_000);
  },
  "readLines() gives lines with their endings and counts all": async ({ environment }) => {
    const folder = await scratch(environment);
    const text = "one\r\ntwo\n\nfour\rsame\nlast";
    await environment.files.writeFile(`${folder}/f`, text);
    const read = async (options: { offset?: number; limit?: number }) => {
      const { bytes, firstLine, totalLines, truncated } = await environment.files.readLines(
        `${folder}/f`,
        options,
      );
      return [bytes.toString(), firstLine, totalLines, truncated];
    };
    expect(await environment.files.readLines(`${folder}/f`)).toEqual({
      realPath: `${folder}/f`,
      bytes: Buffer.from(text),
      firstLine: 1,
      totalLines: 5,
      size: text.length,
      hash: hashOf(text),
      truncated: false,
    });
    expect(await read({ offset: 2, limit: 2 })).toEqual(["two\n\n", 2, 5, false]);
    expect(await read({ offset: -2 })).toEqual(["four\rsame\nlast", 4, 5, false]);
    expect(await read({ offset: 5, limit: 10 })).toEqual(["last", 5, 5, false]);
    expect((await read({ offset: 6 }))[0]).toBe("");
    expect((await read({ offset: -100, limit: 1 }))[0]).toBe("one\r\n");
  },
  "readLines() of an empty file and of newlines alone": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.files.writeFile(`${folder}/empty`, "");
    await environment.files.writeFile(`${folder}/newlines`, "\n\n\n");
    expect(await environment.files.readLines(`${folder}/empty`)).toMatchObject({
      totalLines: 0,
      size: 0,
      truncated: false,
      hash: hashOf(""),
    });
    expect(await environment.files.readLines(`${folder}/newlines`)).toMatchObject({
      totalLines: 3,
      bytes: Buffer.from("\n\n\n"),
    });
  },
  "readLines() gives the bytes of a file that is no UTF-8 text": async ({ environment }) => {
    const folder = await scratch(environment);
    const bytes = Buffer.from([0xff, 0xfe, 0x00, 0x0a, 0xc3, 0x28, 0x0a, 0x00, 0x00]);
    await environment.files.writeFile(`${folder}/f`, bytes);
    expect(await environment.files.readLines(`${folder}/f`)).toMatchObject({
      bytes,
      totalLines: 3,
      hash: hashOf(bytes),
    });
    expect((await environment.files.readLines(`${folder}/f`, { offset: 2, limit: 1 })).bytes).toEqual(
      bytes.subarray(4, 7),
    );
  },
  "readLines() bounds one giant line (FT-33)": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec(
      `head -c 5000000 /dev/zero | tr '\\000' x > ${folder}/f; echo >> ${folder}/f; echo end >> ${folder}/f`,
    );
    const giant = await environment.files.readLines(`${folder}/f`, { maxBytes: 10_000 });
    expect(giant).toMatchObject({ totalLines: 2, size: 5_000_005, truncated: true, firstLine: 1 });
    expect(giant.bytes.length).toBeLessThanOrEqual(10_000);
    expect((await environment.files.readLines(`${folder}/f`, { offset: 2 })).bytes.toString()).toBe("end\n");
  },
  "readLines() cuts at a line end": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec(`seq 1 10000 > ${folder}/f`);
    const { bytes, truncated, totalLines } = await environment.files.readLines(`${folder}/f`, {
      maxBytes: 1_001,
      limit: 5_000,
    });
    expect({ truncated, totalLines, end: bytes.at(-1) }).toEqual({
      truncated: true,
      totalLines: 10_000,
      end: 10,
    });
    expect(bytes.length).toBeGreaterThan(900);
    expect(bytes.length).toBeLessThanOrEqual(1_001);
  },
  "a file too large for memory is read by range and by lines (FT-34)": async ({ environment }) => {
    const folder = await scratch(environment);
    const path = `${folder}/big`;
    // What begins with a block of NULs is binary.
    const made = await environment.exec(
      `head -c 8191 /dev/zero | tr '\\000' a >big && echo >>big && truncate -s 512M big && printf '\\nfirst after\\nend\\n' >>big`,
      { cwd: folder },
    );
    expect(made).toMatchObject({ exitCode: 0 });
    const before = process.memoryUsage().rss;
    await expectCode(environment.files.readFile(path), "FILE_TOO_LARGE");
    expect((await environment.files.readFile(path, { offset: -4 })).bytes.toString()).toBe("end\n");
    expect((await environment.files.readFile(path, { offset: 2 ** 29, maxBytes: 7 })).bytes.toString()).toBe(
      "\nfirst ",
    );
    expect(await environment.files.readLines(path, { offset: 3, limit: 1 })).toMatchObject({
      bytes: Buffer.from("first after\n"),
      firstLine: 3,
      totalLines: 4,
      size: 2 ** 29 + 17,
      hash: null,
    });
    expect(process.memoryUsage().rss - before).toBeLessThan(200 * 1024 * 1024);
    await environment.files.remove(path);
  },
  "a file at the limit is read whole, one beyond is not": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec(
      `truncate -s ${limits.fileWholeMaxBytes} at; truncate -s ${limits.fileWholeMaxBytes + 1} beyond`,
      { cwd: folder },
    );
    const { bytes, hash } = await environment.files.readFile(`${folder}/at`);
    expect([bytes.length, hash]).toEqual([limits.fileWholeMaxBytes, hashOf(bytes)]);
    await expectCode(environment.files.readFile(`${folder}/beyond`), "FILE_TOO_LARGE");
  },
  "paths that are none are refused": async ({ environment }) => {
    for (const path of ["", "a\0b"]) {
      await expectCode(environment.files.readFile(path), "PATH_INVALID");
      await expectCode(environment.files.writeFile(path, "x"), "PATH_INVALID");
      await expectCode(environment.files.stat(path), "PATH_INVALID");
    }
    await expectCode(environment.files.readFile("file:///etc/passwd"), "PATH_INVALID", "FILE_MISSING");
    await expectCode(environment.files.readFile(`/tmp/${"n".repeat(300)}`), "NAME_TOO_LONG");
    await expectCode(
      environment.files.writeFile(`${environment.workspace}/${"n".repeat(300)}`, "x"),
      "NAME_TOO_LONG",
    );
  },
  "files that may not be read are told as such": async (context) => {
    const { environment, skip } = context;
    if (await isRoot(environment)) skip("commands run as root, to whom no permission is refused");
    const folder = await scratch(environment);
    await environment.exec("echo x > f; chmod 000 f; mkdir d; chmod 000 d", { cwd: folder });
    await expectCode(environment.files.readFile(`${folder}/f`), "FILE_PERMISSION");
    await expectCode(environment.files.list(`${folder}/d`), "FILE_PERMISSION");
    await expectCode(environment.files.readFile(`${folder}/d/x`), "FILE_PERMISSION");
    const message = await expectCode(
      environment.files.writeFile("/etc/moorage-conformance", "x"),
      "FILE_PERMISSION",
    );
    expect(message).toContain("/etc/moorage-conformance");
  },
  "20 reads at once each give their own file": async ({ environment }) => {
    const folder = await scratch(environment);
    await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        environment.files.writeFile(`${folder}/${index}`, `text ${index}`),
      ),
    );
    const read = await Promise.all(
      Array.from({ length: 20 }, (_, index) => environment.files.readFile(`${folder}/${index}`)),
    );
    expect(read.map(({ bytes }) => bytes.toString())).toEqual(read.map((_, index) => `text ${index}`));
  },
} satisfies Cases;
