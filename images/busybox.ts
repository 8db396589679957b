/** The BusyBox image made from this host's own static busybox: one program, its links, four folders. */
import { execFile } from "node:child_process";
import { open, readFile } from "node:fs/promises";
import { Readable } from "node:stream";
import { promisify } from "node:util";
import { pack } from "tar-stream";
import { importRootFilesystem } from "./import.ts";
import type { ImageWay } from "./recipe.ts";

const PROGRAM = "/bin/busybox";
const FOLDERS: readonly (readonly [path: string, mode: number])[] = [
  ["bin", 0o755],
  ["etc", 0o755],
  ["root", 0o700],
  ["home", 0o755],
  ["tmp", 0o1777],
  ["var", 0o755],
  ["var/tmp", 0o1777],
  ["workspace", 0o777],
];
const FILES: Readonly<Record<string, string>> = {
  "etc/passwd":
    "root:x:0:0:root:/root:/bin/sh\nmoor:x:1000:1000:moor:/home:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n",
  "etc/group": "root:x:0:\nmoor:x:1000:\nnogroup:x:65534:\n",
};
const CHANGES = ["ENV PATH=/bin", "WORKDIR /workspace", 'CMD ["sh"]'];

export const busyboxFromHost: ImageWay = {
  variant: "host",
  async obstacle() {
    if (process.platform !== "linux") return `this host runs ${process.platform}, not Linux`;
    const linkage = await linkageOf(PROGRAM);
    if (linkage === "missing") return `${PROGRAM} is missing (Debian package busybox-static)`;
    if (linkage === "dynamic") return `${PROGRAM} is not static (Debian package busybox-static is)`;
    return null;
  },
  async inputs() {
    return { program: await readFile(PROGRAM, "base64"), FOLDERS, FILES, CHANGES };
  },
  async build(context) {
    const [program, { stdout }] = await Promise.all([
      readFile(PROGRAM),
      promisify(execFile)(PROGRAM, ["--list"]),
    ]);
    const archive = pack();
    for (const [name, mode] of FOLDERS) archive.entry({ name, mode, type: "directory" });
    for (const [name, content] of Object.entries(FILES)) archive.entry({ name, mode: 0o644 }, content);
    archive.entry({ name: "bin/busybox", mode: 0o755 }, program);
    for (const applet of stdout.split("\n")) {
      if (applet === "" || applet === "busybox") continue;
      archive.entry({ name: `bin/${applet}`, type: "symlink", linkname: "busybox" });
    }
    archive.finalize();
    return importRootFilesystem(Readable.from(archive), CHANGES, context);
  },
};

/** Whether an ELF program needs a dynamic loader, told by its program headers. */
export async function linkageOf(path: string): Promise<"static" | "dynamic" | "missing"> {
  const INTERPRETER = 3;
  const file = await open(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return null;
    throw error;
  });
  if (file === null) return "missing";
  await using _ = file;
  const header = Buffer.alloc(64);
  await file.read(header, 0, header.length, 0);
  if (header.toString("latin1", 0, 4) !== "\x7fELF") return "dynamic";
  const is64 = header[4] === 2;
  const tableOffset = is64 ? Number(header.readBigUInt64LE(32)) : header.readUInt32LE(28);
  const entrySize = header.readUInt16LE(is64 ? 54 : 42);
  const entries = header.readUInt16LE(is64 ? 56 : 44);
  const table = Buffer.alloc(entrySize * entries);
  await file.read(table, 0, table.length, tableOffset);
  for (let index = 0; index < entries; index += 1) {
    if (table.readUInt32LE(index * entrySize) === INTERPRETER) return "dynamic";
  }
  return "static";
}
