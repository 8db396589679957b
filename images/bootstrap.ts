/**
 * The workbench image made without an image registry: mmdebstrap installs a small Debian of the host's release
 * from the host's own package sources, and the Node that the repository brings is copied in, since Debian's own
 * is years older. It has no compiler: with one it would be three times as large.
 */
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { findProgram } from "./find-program.ts";
import { importRootFilesystem } from "./import.ts";
import type { ImageWay } from "./recipe.ts";

const PACKAGES = [
  "bash",
  "ca-certificates",
  "curl",
  "diffutils",
  "findutils",
  "git",
  "less",
  "make",
  "patch",
  "procps",
  "python3",
  "ripgrep",
  "util-linux",
];
/** Run by mmdebstrap's shell with the new root as `$1`. */
const HOOKS = [
  'install -m 0755 "$MOORAGE_NODE" "$1/usr/local/bin/node"',
  "chroot \"$1\" git config --system --add safe.directory '*'",
  'chroot "$1" useradd --create-home --uid 1000 --shell /bin/bash moor',
  'mkdir -p "$1/workspace" && chmod 0777 "$1/workspace"',
];
const LEFT_OUT = ["/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*"];
const CHANGES = [
  "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
  "ENV LANG=C.UTF-8",
  "WORKDIR /workspace",
  'CMD ["/bin/bash"]',
];

export const workbenchFromPackages: ImageWay = {
  variant: "bootstrap",
  async obstacle() {
    if (findProgram("mmdebstrap") === null) return "mmdebstrap is not installed (Debian package mmdebstrap)";
    if (findProgram("apt-get") === null) return "this host has no apt package sources";
    if ((await debianSources()).files.length === 0) {
      return "no Debian package source is known to apt (run apt-get update)";
    }
    return null;
  },
  async inputs() {
    const { release, node } = { release: (await debianSources()).release, node: nodeForImages() };
    return { PACKAGES, HOOKS, LEFT_OUT, CHANGES, release, node: node.version, arch: process.arch };
  },
  async build(context) {
    const { release, files } = await debianSources();
    context.onProgress(`installing Debian ${release} with ${PACKAGES.length} packages, about half a minute`);
    const debootstrap = spawn(
      "mmdebstrap",
      [
        "--variant=minbase",
        `--include=${PACKAGES.join(",")}`,
        ...LEFT_OUT.map((pattern) => `--dpkgopt=path-exclude=${pattern}`),
        ...HOOKS.map((hook) => `--customize-hook=${hook}`),
        release,
        "-",
        ...files,
      ],
      {
        stdio: ["ignore", "pipe", "pipe"],
        env: { ...process.env, MOORAGE_NODE: nodeForImages().path, DEBIAN_FRONTEND: "noninteractive" },
        // A process group of its own: mmdebstrap leaves an interruption to its children, which clean up.
        detached: true,
      },
    );
    const interrupt = () => debootstrap.pid !== undefined && process.kill(-debootstrap.pid, "SIGINT");
    context.abortSignal?.addEventListener("abort", interrupt, { once: true });
    const [imported, ended] = await Promise.allSettled([
      importRootFilesystem(debootstrap.stdout, CHANGES, context),
      failureOf(debootstrap, context.onProgress),
    ]);
    context.abortSignal?.removeEventListener("abort", interrupt);
    // What mmdebstrap says comes first: the engine only sees that the archive is short or empty.
    const failure = ended.status === "rejected" ? ended.reason : ended.value && new Error(ended.value);
    if (imported.status === "rejected") throw failure ?? imported.reason;
    if (failure === null) return imported.value;
    await context.docker.getImage(imported.value).remove({ force: true });
    throw failure;
  },
};

/** Waits for mmdebstrap's end and passes its news on. */
async function failureOf(child: ChildProcess, onProgress: (message: string) => void): Promise<string | null> {
  const lastLines: string[] = [];
  if (child.stderr === null) throw new TypeError("mmdebstrap was started without its messages");
  createInterface({ input: child.stderr }).on("line", (line) => {
    lastLines.push(line);
    if (lastLines.length > 5) lastLines.shift();
    if (line.startsWith("I: ") && /running apt|downloading|extracting|installing|creating/.test(line)) {
      onProgress(line.slice(3).replace(/\.\.\.$/, ""));
    }
  });
  const [code, signal] = await once(child, "close");
  if (code === 0) return null;
  return `mmdebstrap ended with ${signal ?? `exit code ${code}`}: ${lastLines.join(" | ")}`;
}

interface DebianSources {
  /** The host's release, `bookworm`. */
  readonly release: string;
  /** Files that name where apt gets Debian from. */
  readonly files: readonly string[];
}

/** Asks apt which of its sources are Debian's own, so that no third party's end up in the image. */
async function debianSources(): Promise<DebianSources> {
  const { stdout } = await promisify(execFile)("apt-get", [
    "indextargets",
    "--format",
    "$(ORIGIN)|$(CODENAME)|$(SOURCESENTRY)",
    "Created-By: Packages",
  ]);
  const rows = stdout
    .split("\n")
    .map((line) => line.split("|"))
    .filter(([origin]) => origin === "Debian");
  const files = new Set(rows.map(([, , entry = ""]) => entry.replace(/:\d+$/, "")));
  // The release itself has the plain name; its updates and security archives add to it.
  const releases = rows.map(([, codename = ""]) => codename).sort((a, b) => a.length - b.length);
  return { release: releases[0] ?? "", files: [...files].filter((file) => existsSync(file)) };
}

/** The Node to copy: the repository's own where it has one, or the one that runs this. */
function nodeForImages(): { readonly path: string; readonly version: string } {
  const require = createRequire(import.meta.url);
  try {
    const manifest = require.resolve("node/package.json");
    const path = join(dirname(manifest), "bin", "node");
    // The package's manifest is plain JSON with a version.
    if (existsSync(path)) return { path, version: `v${(require(manifest) as { version: string }).version}` };
  } catch {
    // An installed Moorage does not bring the development dependency: the running Node serves.
  }
  return { path: process.execPath, version: process.version };
}
