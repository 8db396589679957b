/** The first mirror of a pair on this machine, which copies files itself, against the way that all others go. */
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it, vi } from "vitest";
import type { BaseEnvironment } from "../../../environments/base.ts";
import { createLocalEnvironment } from "../../../environments/local/index.ts";
import { Baseline, baselineFile } from "../../../environments/sync/baseline.ts";
import { mirrorFirst } from "../../../environments/sync/first.ts";
import { mirror, type SyncOptions } from "../../../environments/sync/mirror.ts";
import { createHostTree } from "../../../environments/tree/host.ts";
import { stageName } from "../../../environments/tree/host-writer.ts";
import { ODD_NAMES } from "../tree/cases.ts";
import { picture, write } from "../tree/picture.ts";

const base = realpathSync(mkdtempSync(join(tmpdir(), "moorage-first-")));
afterAll(() => rmSync(base, { recursive: true, force: true }));
let count = 0;

interface Fixture extends AsyncDisposable {
  readonly host: string;
  readonly remote: string;
  readonly state: string;
  readonly environment: BaseEnvironment;
  readonly sync: (options?: Partial<SyncOptions>) => ReturnType<typeof mirror>;
}

/** @param host shared with another fixture. @default one of its own */
function fixture(host?: string): Fixture {
  const folder = join(base, String(count++));
  const paths = {
    host: host ?? join(folder, "host"),
    remote: join(folder, "remote"),
    state: join(folder, "state"),
  };
  for (const path of Object.values(paths)) mkdirSync(path, { recursive: true });
  const environment = createLocalEnvironment({ workspace: paths.remote, stateDir: paths.state });
  return {
    ...paths,
    environment,
    sync: (options = {}) =>
      mirror(paths.host, environment, { direction: "push", stateDir: paths.state, ...options }),
    [Symbol.asyncDispose]: () => environment.stop(),
  };
}

/** So that no file is copied by this process itself. */
function goUsualWay({ environment }: Fixture): void {
  vi.spyOn(environment, "capabilities", "get").mockReturnValue(new Set());
}

/** Whether the shell's way was asked for: a mirror that copies by itself makes no writer. */
function spyOnWriter({ environment }: Fixture) {
  return vi.spyOn(environment.tree, "writer");
}

const file = ({ host, state, remote }: Fixture) => baselineFile(state, host, `local::${remote}`);

function times(folder: string): Record<string, number> {
  const names = readdirSync(folder, { recursive: true, encoding: "utf8" });
  return Object.fromEntries(
    names
      .filter((name) => statSync(join(folder, name), { throwIfNoEntry: false })?.isFile())
      .map((name) => [name, Math.floor(statSync(join(folder, name)).mtimeMs / 1000)]),
  );
}

/** So many files that threads help, in folders of more and of fewer files than one of them takes at once. */
function makeMany(host: string): number {
  let made = 0;
  for (let folder = 0; folder < 8; folder += 1) {
    mkdirSync(join(host, `d${folder}`));
    for (let index = 0; index < 30 * (folder + 1); index += 1, made += 1)
      writeFileSync(join(host, `d${folder}`, `f${index}`), `file ${folder} ${index}\n`.repeat(index % 50));
  }
  return made + 8;
}

const stages = (folder: string) => readdirSync(folder).filter((name) => name.startsWith(".moorage-"));
const nothing = { pushed: [], pulled: [], conflicts: [], skipped: [] };

describe("the first mirror on this machine", () => {
  it("makes what the usual way makes, and keeps what that keeps", async () => {
    await using f = fixture();
    for (const [index, mode] of [0o644, 0o755, 0o600, 0o444, 0o4755, 0o777, 0o200].entries()) {
      write(join(f.host, "modes", String(index)), `mode ${index}`);
      chmodSync(join(f.host, "modes", String(index)), mode);
    }
    for (const mode of [0o755, 0o700, 0o555, 0o777, 0o1777, 0o511]) {
      write(join(f.host, `folder-${mode.toString(8)}`, "in/file"), "1");
      chmodSync(join(f.host, `folder-${mode.toString(8)}`, "in"), mode);
      chmodSync(join(f.host, `folder-${mode.toString(8)}`), mode);
    }
    for (const name of ODD_NAMES)
      writeFileSync(Buffer.concat([Buffer.from(`${f.host}/`), Buffer.from(name, "latin1")]), "odd");
    writeFileSync(join(f.host, "empty"), "");
    mkdirSync(join(f.host, "empty-folder"));
    writeFileSync(join(f.host, "exactly"), "x".repeat(256 * 1024));
    writeFileSync(join(f.host, "large"), Buffer.alloc(700_001, "large"));
    utimesSync(join(f.host, "large"), 1_000_000_000, 1_000_000_000.7);
    utimesSync(join(f.host, "empty"), -5, -5);
    symlinkSync("/etc/passwd", join(f.host, "link"));
    symlinkSync("nowhere\u00e9", join(f.host, "modes/dangling"));
    spawnSync("mkfifo", [join(f.host, "pipe")]);
    write(join(f.host, ".gitignore"), "*.log\nbuild/\n");
    write(join(f.host, "a.log"), "left out");
    write(join(f.host, "build/out"), "left out");
    write(join(f.host, "sub/.gitignore"), "!kept.log\n");
    write(join(f.host, "sub/kept.log"), "kept");
    write(join(f.host, "sub/x.conflict-00000000"), "left out");
    const writtenAt = Date.now();
    await vi.waitFor(() => expect(Date.now() - writtenAt).toBeGreaterThan(200));
    await using usual = fixture(f.host);
    goUsualWay(usual);
    const writer = spyOnWriter(f);
    const report = await f.sync();
    expect(writer).not.toHaveBeenCalled();
    expect(report).toEqual(await usual.sync());
    expect(report.pushed.length).toBeGreaterThan(40);
    expect(report.skipped).toEqual([{ path: "pipe", reason: "it is a fifo" }]);
    expect(picture(f.remote)).toEqual(picture(usual.remote));
    expect(times(f.remote)).toEqual(times(usual.remote));
    expect(stages(f.remote)).toEqual([]);
    {
      using ours = await Baseline.open(file(f));
      using theirs = await Baseline.open(file(usual));
      expect(ours.kept).toEqual({ ...theirs.kept, word: ours.kept.word });
      expect(ours.kept.here.size).toBeGreaterThan(20);
      expect(ours.intent).toBeNull();
    }
    expect(await f.sync({ direction: "both" })).toEqual({ ...nothing, skipped: report.skipped });
  });

  it("gives files their modes whatever the umask", async () => {
    await using f = fixture();
    write(join(f.host, "d/open"), "1");
    write(join(f.host, "d/other"), "2");
    for (const name of ["open", "other"]) chmodSync(join(f.host, "d", name), 0o666);
    const before = process.umask(0o077);
    try {
      await f.sync();
    } finally {
      process.umask(before);
    }
    expect(picture(f.remote)).toEqual(picture(f.host));
  });

  it("copies many files with threads, tells how far it is, and leaves nothing when it is cancelled", async () => {
    await using f = fixture();
    const made = makeMany(f.host);
    const writer = spyOnWriter(f);
    const controller = new AbortController();
    const cancelled = f.sync({
      abortSignal: controller.signal,
      onProgress: ({ fraction }) => {
        if (fraction > 0.3) controller.abort();
      },
    });
    await expect(cancelled).rejects.toMatchObject({ code: "ABORTED" });
    expect(readdirSync(f.remote)).toEqual([]);
    rmSync(f.state, { recursive: true });
    const fractions: number[] = [];
    const report = await f.sync({ onProgress: ({ fraction }) => fractions.push(fraction) });
    expect({ ...report, pushed: report.pushed.length }).toEqual({ ...nothing, pushed: made });
    expect(report.pushed).toEqual([...report.pushed].sort());
    expect(fractions).toEqual([...fractions].sort((a, b) => a - b));
    expect(fractions.at(-1)).toBe(1);
    expect(picture(f.remote)).toEqual(picture(f.host));
    expect(writer).not.toHaveBeenCalled();
  });

  it("has a thread go on where this one is held up", async ({ skip }) => {
    if (availableParallelism() === 1) skip("there is one core");
    await using f = fixture();
    const made = makeMany(f.host) - 8;
    let [before, after] = [0, 0];
    const onProgress = () => {
      if (before > 0) return;
      const [stage = ""] = stages(f.remote);
      const staged = () => readdirSync(join(f.remote, stage), { recursive: true }).length - 8;
      before = staged();
      // Nothing else of this thread runs meanwhile.
      const endsAt = performance.now() + 60_000;
      while (after < made && performance.now() < endsAt) after = staged();
    };
    await f.sync({ onProgress });
    expect(before).toBeLessThan(made);
    expect(after).toBe(made);
    expect(picture(f.remote)).toEqual(picture(f.host));
  });

  it("writes nothing through a link that is put in the place of a staged folder meanwhile", async () => {
    await using f = fixture();
    const outside = join(base, "outside");
    mkdirSync(outside);
    makeMany(f.host);
    const swapped = new Set<string>();
    const onProgress = () => {
      if (swapped.size > 0) return;
      const [stage = ""] = stages(f.remote);
      for (const name of readdirSync(join(f.remote, stage))) {
        renameSync(join(f.remote, stage, name), join(f.remote, stage, `${name}-away`));
        symlinkSync(outside, join(f.remote, stage, name));
        swapped.add(name);
      }
    };
    await f.sync({ onProgress });
    expect(swapped.size).toBe(8);
    expect(readdirSync(outside)).toEqual([]);
    expect(picture(f.remote)).toEqual(picture(f.host));
  });

  it("reads nothing through a link that is put in the place of a folder meanwhile", async () => {
    await using f = fixture();
    const secret = join(base, "secret");
    makeMany(f.host);
    for (let index = 0; index < 320; index += 1) write(join(secret, `f${index}`), "secret");
    let swapped = 0;
    const onProgress = () => {
      for (const name of swapped > 0 ? [] : readdirSync(f.host)) {
        renameSync(join(f.host, name), join(base, `away-${name}`));
        symlinkSync(secret, join(f.host, name));
        swapped += 1;
      }
    };
    await f.sync({ onProgress });
    expect(swapped).toBe(8);
    for (const name of readdirSync(f.remote)) {
      // What was read before is a folder still.
      const held = picture(f.remote);
      if (held[name]?.startsWith("->")) expect(readlinkSync(join(f.remote, name))).toBe(secret);
      expect(
        Object.values(held).filter((text) => text.endsWith("secret") && text.startsWith("file")),
      ).toEqual([]);
    }
  });

  it("leaves what somebody puts into the target meanwhile, and tells", async () => {
    await using f = fixture();
    makeMany(f.host);
    write(join(f.host, "mine"), "host");
    const onProgress = () => {
      write(join(f.remote, "mine"), "theirs");
      write(join(f.remote, "d3/f1"), "theirs");
    };
    const { conflicts, pushed } = await f.sync({ onProgress });
    expect(conflicts).toEqual([
      { path: "d3/f1", copy: null },
      { path: "mine", copy: null },
    ]);
    for (const name of ["mine", "d3/f1"]) expect(readFileSync(join(f.remote, name), "utf8")).toBe("theirs");
    expect(stages(f.remote)).toEqual([]);
    const others = ({ mine: _, "d3/f1": __, ...rest }: ReturnType<typeof picture>) => rest;
    expect(others(picture(f.remote))).toEqual(others(picture(f.host)));
    expect(pushed).toEqual(
      Object.keys(picture(f.host)).filter((path) => !["mine", "d3/f1", "d3"].includes(path)),
    );
  });

  it("leaves to the next go what is too much for one, and goes on from there", async () => {
    await using f = fixture();
    const made = makeMany(f.host);
    const tree = createHostTree();
    const first = await mirrorFirst({
      tree,
      here: f.host,
      there: f.remote,
      start: () => f.environment.start(),
      stateDir: f.state,
      file: file(f),
      maxBytes: 100 * 1024,
    });
    expect(first?.isPart).toBe(true);
    const there = Object.keys(picture(f.remote));
    expect([...(first?.pushed ?? [])].sort()).toEqual(there);
    expect(there.length).toBeGreaterThan(8);
    expect(there.length).toBeLessThan(made);
    const { pushed, conflicts } = await f.sync();
    expect(conflicts).toEqual([]);
    expect(pushed).toHaveLength(made - there.length);
    expect(picture(f.remote)).toEqual(picture(f.host));
  });

  it("skips a file that goes away meanwhile, or becomes a pipe, and waits for neither", async () => {
    await using f = fixture();
    makeMany(f.host);
    const folders = Array.from({ length: 8 }, (_, index) => join(f.host, `d${index}`));
    let isDone = false;
    const onProgress = () => {
      if (isDone) return;
      isDone = true;
      for (const name of ["f0", "f1"]) for (const folder of folders) rmSync(join(folder, name));
      spawnSync(
        "mkfifo",
        folders.map((folder) => join(folder, "f1")),
      );
    };
    const { skipped, pushed } = await f.sync({ onProgress });
    const there = picture(f.remote);
    for (const name of ["f0", "f1"])
      expect(skipped.filter(({ path }) => path.endsWith(`/${name}`)).length).toBeGreaterThan(0);
    for (const { path, reason } of skipped) {
      expect(reason).toBe("it cannot be read, or went away");
      expect(path).toMatch(/^d\d\/f[01]$/);
      expect(there[path]).toBeUndefined();
      expect(pushed).not.toContain(path);
    }
    for (const folder of folders) rmSync(join(folder, "f1"));
    expect(await f.sync()).toMatchObject({ conflicts: [], skipped: [] });
    expect(picture(f.remote)).toEqual(picture(f.host));
  });

  it("begins anew, the usual way, when a file becomes shorter while it is read", async () => {
    await using f = fixture();
    writeFileSync(join(f.host, "log"), Buffer.alloc(2_000_000, "line"));
    const writer = spyOnWriter(f);
    const onProgress = () => {
      if (writer.mock.calls.length === 0) truncateSync(join(f.host, "log"), 300_000);
    };
    expect(await f.sync({ onProgress })).toEqual({ ...nothing, pushed: ["log"] });
    expect(writer).toHaveBeenCalledTimes(1);
    expect(picture(f.remote)).toEqual(picture(f.host));
  });

  it("is understood when it died between putting folders in place and keeping that", async () => {
    await using f = fixture();
    for (const path of ["d/a", "d/b", "e/c", "f"]) write(join(f.host, path), path);
    await f.sync();
    // As it was before the last step, with one folder that had not come into place, and one from before its death.
    const whole = await Baseline.open(file(f));
    const records = [...whole.kept.states].map(([path, state]) => `${path}\0${state}\0`);
    whole[Symbol.dispose]();
    rmSync(file(f));
    {
      using base = await Baseline.open(file(f));
      base.intendFirst(records.join("\0\0\0\0"));
    }
    rmSync(join(f.remote, "e"), { recursive: true });
    const stage = stageName().replace(/-stage-.*-/, `-stage-${deadOwner()}-`);
    write(join(f.remote, stage, "e/c"), "e/c");
    write(join(f.host, "d/a"), "changed after it");
    expect(await f.sync({ direction: "both" })).toEqual({ ...nothing, pushed: ["d/a", "e", "e/c"] });
    expect(picture(f.remote)).toEqual(picture(f.host));
    expect(stages(f.remote)).toEqual([]);
  });

  it("goes the usual way where something is in the target", async () => {
    await using f = fixture();
    write(join(f.host, "a"), "1");
    write(join(f.remote, "b"), "2");
    const writer = spyOnWriter(f);
    expect(await f.sync()).toEqual({ ...nothing, pushed: ["a"] });
    expect(writer).toHaveBeenCalledTimes(1);
  });
});

/** In hex, the label of a process of this machine that is no more. */
function deadOwner(): string {
  const own = Buffer.from(stageName().split("-")[2] ?? "", "hex").toString();
  const { pid } = spawnSync("true");
  return Buffer.from(own.split(":").with(4, String(pid)).join(":")).toString("hex");
}
