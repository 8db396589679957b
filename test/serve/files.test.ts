/** Archives as they are written: what the environment is asked for. */
import { gzipSync } from "node:zlib";
import { pack } from "tar-stream";
import { expect, it } from "vitest";
import type { Command, ExecResult } from "../../environments/base.ts";
import { abortedResult } from "../../environments/shell/runner.ts";
import { writeArchive } from "../../src/serve/files.ts";
import { EmptyEnvironment } from "../src/fake-environment.ts";

/** Every file is there already. */
class FullEnvironment extends EmptyEnvironment {
  readonly ran: Command[] = [];
  override readonly files = {
    ...new EmptyEnvironment().files,
    apply: async (changes: readonly { readonly path: string }[]) =>
      changes.map(({ path }) => ({ path, realPath: path, created: false })) as never,
  };

  override async exec(command: Command): Promise<ExecResult> {
    this.ran.push(command);
    return { ...abortedResult("/"), aborted: false, exitCode: 0 };
  }
}

it("an archive of many files that are there sets their modes in few commands", async () => {
  const tar = pack();
  for (let at = 0; at < 600; at += 1) tar.entry({ name: `f${at}`, mode: at === 0 ? 0o640 : 0o755 }, "x");
  // The last one of a name counts.
  tar.entry({ name: "f1", mode: 0o600 }, "x");
  tar.finalize();
  const chunks: Buffer[] = [];
  for await (const chunk of tar) chunks.push(Buffer.from(chunk as Uint8Array));
  const environment = new FullEnvironment();
  await writeArchive(environment, "/w", gzipSync(Buffer.concat(chunks)));
  expect(environment.ran.length).toBe(5);
  expect(environment.ran.map((command) => command.slice(0, 3))).toEqual([
    ["chmod", "640", "/w/f0"],
    ["chmod", "600", "/w/f1"],
    ["chmod", "755", "/w/f2"],
    ["chmod", "755", expect.any(String)],
    ["chmod", "755", expect.any(String)],
  ]);
});
