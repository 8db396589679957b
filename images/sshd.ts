/**
 * The image of SSH servers for the tests, made without an image registry: the host's own servers and login shells,
 * put on a workbench that was made from the same release of Debian. That takes seconds, where packages would take
 * minutes.
 */
import { execFile } from "node:child_process";
import { readdir, readFile, realpath, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { promisify } from "node:util";
import { pack } from "tar-stream";
import { workbenchFromPackages } from "./bootstrap.ts";
import { buildDockerfile } from "./dockerfile.ts";
import { findImage } from "./find-image.ts";
import { findProgram } from "./find-program.ts";
import { type ImageWay, VARIANT_LABEL } from "./recipe.ts";

const BASE = "moorage/workbench:latest";
const PROGRAMS = ["sshd", "dropbear", "dropbearconvert", "fish", "tcsh"];
/** What newer releases of sshd have apart from it, and what the shells read. */
const FURTHER = [
  "/usr/lib/openssh/sshd-session",
  "/usr/lib/openssh/sshd-auth",
  "/usr/share/fish",
  "/etc/fish",
];
/** Parts of one C library, which belong together and which the base has. */
const C_LIBRARY = /^(?:ld-|lib(?:c|m|mvec|dl|rt|pthread|resolv|util|anl)\.so)/;
const DOCKERFILE = `FROM ${BASE}
COPY root/ /
RUN ldconfig \\
 && useradd --system --home-dir /run/sshd --shell /usr/sbin/nologin sshd \\
 && mkdir -p /run/sshd
`;

export const sshdFromHost: ImageWay = {
  variant: "host",
  async obstacle(docker) {
    if (process.platform !== "linux") return `this host runs ${process.platform}, not Linux`;
    const missing = [...PROGRAMS, "ldd"].filter((name) => findProgram(name) === null);
    if (missing.length > 0) return `not installed: ${missing.join(", ")}`;
    const base = await findImage(docker, BASE);
    return base?.Config.Labels?.[VARIANT_LABEL] === workbenchFromPackages.variant
      ? null
      : `${BASE} is missing or has another system than this host`;
  },
  async inputs() {
    const files = [];
    for (const [path, source] of await hostFiles()) {
      const { size, mtimeMs } = await stat(source);
      files.push([path, size, mtimeMs]);
    }
    return { DOCKERFILE, files, base: await workbenchFromPackages.inputs() };
  },
  async build(context) {
    const archive = pack();
    archive.entry({ name: "Dockerfile" }, DOCKERFILE);
    for (const [path, source] of await hostFiles()) {
      const { mode } = await stat(source);
      archive.entry({ name: `root${path}`, mode: mode & 0o777 }, await readFile(source));
    }
    archive.finalize();
    return buildDockerfile(archive, context);
  },
};

/** Where each file goes, and the host's file that it is. */
async function hostFiles(): Promise<ReadonlyMap<string, string>> {
  const programs = PROGRAMS.map(findProgram).filter((path) => path !== null);
  const further = (await Promise.all(FURTHER.map(filesUnder))).flat();
  const libraries = await librariesOf([...programs, ...further.filter((path) => path.includes("/openssh/"))]);
  const files = new Map<string, string>();
  for (const path of [...programs, ...further, ...libraries].sort()) {
    // A folder such as /bin may be a link, which a copy must not replace.
    files.set(join(await realpath(dirname(path)), basename(path)), path);
  }
  return files;
}

/** A file itself, all files of a folder, nothing for what is missing. */
async function filesUnder(path: string): Promise<readonly string[]> {
  const found = await stat(path).catch(() => null);
  if (found === null) return [];
  if (found.isFile()) return [path];
  const entries = await readdir(path, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
}

async function librariesOf(programs: readonly string[]): Promise<readonly string[]> {
  const { stdout } = await promisify(execFile)("ldd", [...programs]);
  const paths = stdout.split("\n").map((line) => /^\t(?:.* => )?(\/\S+) \(0x/.exec(line)?.[1]);
  return [...new Set(paths)].filter(
    (path) => path !== undefined && !C_LIBRARY.test(basename(path)),
  ) as string[];
}
