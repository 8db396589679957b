/** Archives as they are written: what the environment is asked for. */
import { gzipSync } from "node:zlib";
import { pack } from "tar-stream";
import { expect, it } from "vitest";
import type { BaseEnvironment, Command, FileChange } from "../../environments/base.ts";
import { abortedResult } from "../../environments/shell/runner.ts";
import { writeArchive } from "../../src/serve/files.ts";

/** A place where every file is there already, and nothing else can be asked for. */
function fullEnvironment(ran: Command[]): BaseEnvironment {
  const environment = {
    files: {
      apply: async (changes: readonly FileChange[]) =>
        changes.map((change) => ({ realPath: "path" in change ? change.path : "", created: false })),
    },
    exec: async (command: Command) => {
      ran.push(command);
      return { ...abortedResult("/"), aborted: false, exitCode: 0 };
    },
  };
  return environment as unknown as BaseEnvironment; // whoever writes an archive asks for no more
}

it("an archive of many files that are there sets their modes in few commands", async () => {
  const tar = pack();
  for (let at = 0; at < 600; at += 1) tar.entry({ name: `f${at}`, mode: at === 0 ? 0o640 : 0o755 }, "x");
  // The last one of a name counts.
  tar.entry({ name: "f1", mode: 0o600 }, "x");
  tar.finalize();
  const chunks: Buffer[] = [];
  for await (const chunk of tar) chunks.push(Buffer.from(chunk as Uint8Array));
  const ran: Command[] = [];
  await writeArchive(fullEnvironment(ran), "/w", gzipSync(Buffer.concat(chunks)));
  expect(ran.length).toBe(5);
  expect(ran.map((command) => command.slice(0, 3))).toEqual([
    ["chmod", "640", "/w/f0"],
    ["chmod", "600", "/w/f1"],
    ["chmod", "755", "/w/f2"],
    ["chmod", "755", expect.any(String)],
    ["chmod", "755", expect.any(String)],
  ]);
});
