import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { decodeTar, encodeTarHeader, TarBatch, type TarEntry } from "../../../environments/tree/tar.ts";
import { ODD_NAMES } from "./cases.ts";

const base = mkdtempSync(join(tmpdir(), "moorage-tar-"));
afterAll(() => rmSync(base, { recursive: true, force: true }));

type Read = Omit<TarEntry, "content" | "bytes"> & { readonly bytes: string };

/** Reads an archive that comes in pieces of `size` bytes. */
async function read(archive: Buffer, size = 1000, options = {}): Promise<Read[]> {
  const source = (async function* () {
    for (let at = 0; at < archive.length; at += size) yield archive.subarray(at, at + size);
  })();
  const entries: Read[] = [];
  for await (const { content, bytes, ...entry } of decodeTar(source, options)) {
    const chunks: Buffer[] = [];
    for await (const chunk of content) chunks.push(chunk);
    const whole = Buffer.concat(chunks);
    if (bytes) expect(bytes).toEqual(whole);
    entries.push({ ...entry, bytes: whole.toString("latin1") });
  }
  return entries;
}

function archiveOf(entries: readonly { readonly path: string; readonly bytes: string }[]): Buffer {
  const batch = new TarBatch();
  for (const { path, bytes } of entries) {
    const header = { path, type: "file", size: bytes.length, mode: 0o640, modifiedAt: 1 } as const;
    batch.add(header, [Buffer.from(bytes, "latin1")]);
  }
  return batch.take();
}

const long = (length: number) => `${"d".repeat(90)}/`.repeat(Math.ceil(length / 91)).slice(0, length);

describe("decodeTar()", () => {
  it.each(["gnu", "posix", "ustar"])(
    "reads what GNU tar writes in format %s, long names and names of any bytes too (DK-36)",
    async (format) => {
      const folder = join(base, format);
      mkdirSync(join(folder, long(format === "ustar" ? 90 : 400)), { recursive: true });
      const names = ODD_NAMES.filter((name) => format !== "ustar" || name.length < 100);
      for (const name of names)
        writeFileSync(
          Buffer.concat([Buffer.from(`${folder}/`), Buffer.from(name, "latin1")]),
          name,
          "latin1",
        );
      writeFileSync(join(folder, long(format === "ustar" ? 90 : 400), "f"), "deep");
      const archive = execFileSync("tar", ["-C", folder, `--format=${format}`, "-cf", "-", "."], {
        maxBuffer: 1e8,
      });
      for (const size of [1, 511, 512, 100_000].slice(format === "gnu" ? 0 : 1)) {
        const files = (await read(archive, size)).filter(({ type }) => type === "file");
        const found = Object.fromEntries(files.map(({ path, bytes }) => [path.slice(2), bytes]));
        expect(found).toEqual({
          ...Object.fromEntries(names.map((name) => [name, name])),
          [`${long(format === "ustar" ? 90 : 400)}/f`]: "deep",
        });
      }
    },
  );

  it("reads several archives one after the other, and their own encoder's", async () => {
    const entries = [
      { path: "a", bytes: "1" },
      { path: long(300), bytes: "x".repeat(1024) },
      { path: "\xff", bytes: "" },
    ];
    const archive = Buffer.concat([archiveOf(entries), archiveOf(entries)]);
    expect((await read(archive)).map(({ path, bytes }) => ({ path, bytes }))).toEqual([
      ...entries,
      ...entries,
    ]);
  });

  it("takes an early end for an error, wherever it comes (SY-17)", async () => {
    const archive = archiveOf([{ path: "a", bytes: "x".repeat(2000) }]);
    for (const length of [100, 511, 512, 600, 2511, 3071, 2560]) {
      await expect(read(archive.subarray(0, length)), `${length} bytes`).rejects.toMatchObject({
        code: "INTERNAL",
      });
    }
    expect(await read(Buffer.alloc(0))).toEqual([]);
  });

  it("refuses wrong sums, sparse files, malformed and huge headers, and too many entries (DK-33)", async () => {
    const good = archiveOf([{ path: "a", bytes: "1" }]);
    const wrongSum = Buffer.from(good);
    wrongSum[0] = 0x62;
    await expect(read(wrongSum)).rejects.toThrow(/sum is wrong/);
    const sparse = join(base, "sparse");
    writeFileSync(sparse, "");
    truncateSync(sparse, 10_000_000);
    for (const format of ["gnu", "posix"]) {
      const archive = execFileSync("tar", [
        "-C",
        base,
        `--format=${format}`,
        "--sparse",
        "-cf",
        "-",
        "sparse",
      ]);
      await expect(read(archive), format).rejects.toThrow(/sparse/);
    }
    const huge = encodeTarHeader({ path: "x", type: "file", size: 2 ** 40, mode: 0, modifiedAt: 0 });
    huge[156] = "L".charCodeAt(0);
    huge.write("        ", 148, "latin1");
    const sum = huge.reduce((total, byte) => total + byte, 0);
    huge.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
    await expect(read(huge)).rejects.toThrow(/record has/);
    const many = archiveOf(Array.from({ length: 20 }, (_, index) => ({ path: `f${index}`, bytes: "" })));
    await expect(read(many, 1000, { maxEntries: 10 })).rejects.toThrow(/more than 10/);
    const record = encodeTarHeader({ path: long(300), type: "file", size: 0, mode: 0, modifiedAt: 0 });
    const endless = Buffer.concat(Array(1_000).fill(record.subarray(0, 1024)));
    await expect(read(endless)).rejects.toThrow(/records without end/);
    await expect(read(Buffer.alloc(1024, "x"))).rejects.toMatchObject({ code: "INTERNAL" });
  });

  it("reads and writes sizes beyond 8 GiB, which octal digits cannot hold (DK-35)", async () => {
    const size = 9 * 2 ** 30;
    const folder = join(base, "big");
    mkdirSync(folder);
    writeFileSync(join(folder, "big.bin"), "");
    truncateSync(join(folder, "big.bin"), size);
    const theirs = (format: string) =>
      execFileSync("sh", ["-c", `tar --format=${format} -cf - big.bin | head -c 2048`], { cwd: folder });
    const ours = encodeTarHeader({ path: "big.bin", type: "file", size, mode: 0o644, modifiedAt: 0 });
    for (const archive of [theirs("gnu"), theirs("posix"), ours]) {
      const source = (async function* () {
        yield archive;
      })();
      const { value } = await decodeTar(source).next();
      expect(value).toMatchObject({ path: "big.bin", type: "file", size });
    }
    const { stdout } = spawnSync("tar", ["-tvf", "-"], { input: ours, encoding: "utf8" });
    expect(stdout).toMatch(/ 9663676416 .* big\.bin$/m);
  });

  it("tells links, devices and folders apart and gives them no content", async () => {
    const folder = join(base, "kinds");
    mkdirSync(folder);
    execFileSync("sh", ["-c", "echo 1 >f; ln f h; ln -s /etc/passwd s; mkfifo p; mkdir d"], { cwd: folder });
    const archive = execFileSync("tar", ["-C", folder, "-cf", "-", "f", "h", "s", "p", "d"]);
    expect(
      (await read(archive)).map(({ path, type, linkTarget, bytes }) => [path, type, linkTarget, bytes]),
    ).toEqual([
      ["f", "file", "", "1\n"],
      ["h", "hardlink", "f", ""],
      ["s", "symlink", "/etc/passwd", ""],
      ["p", "other", "", ""],
      ["d/", "directory", "", ""],
    ]);
  });
});
