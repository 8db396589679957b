import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it, onTestFinished } from "vitest";
import { makePlace } from "../environments/ssh/places.ts";
import { canRun, sshdObstacle } from "../environments/ssh/sshd.ts";
import { connect } from "./mcp-client.ts";
import { privateHome, temporaryFolder } from "./moor.ts";
import { codeOf, moorWords } from "./readme.ts";

const EXAMPLE = join(import.meta.dirname, "../../examples/library.ts");
const obstacle = sshdObstacle();
canRun("the README's line for SSH", obstacle);

describe("the README", () => {
  it("shows the beginning of an example that runs", async () => {
    const [code = ""] = codeOf("ts").filter((each) => each.includes("createMoorage"));
    expect(readFileSync(EXAMPLE, "utf8")).toContain(code);
    const { stdout, stderr } = await promisify(execFile)(process.execPath, [EXAMPLE], {
      cwd: temporaryFolder(),
      env: { ...process.env, ...privateHome() },
    });
    const [tools, text = "", ...rest] = stdout.split("\n");
    expect({ tools, stderr, rest }).toEqual({
      tools: "patch process read_file search_files terminal write_file",
      stderr: "",
      rest: ["out", "", "0 CI is 1", " true", ""],
    });
    expect(JSON.parse(text)).toMatchObject({ exit_code: 0 });
  });

  it.skipIf(obstacle !== null)("has one line that points an agent at a remote machine", async () => {
    const place = await makePlace();
    onTestFinished(() => place[Symbol.asyncDispose]());
    const { sshd, account, key } = place;
    const home = temporaryFolder();
    mkdirSync(join(home, ".ssh"), { mode: 0o700 });
    writeFileSync(
      join(home, ".ssh/config"),
      `Host box\n  HostName ${sshd.address}\n  Port ${sshd.port}\n  IdentityFile ${key}\n`,
    );
    writeFileSync(join(home, ".ssh/known_hosts"), readFileSync(place.knownHosts));
    // The line names a user and a folder that this machine's server does not have.
    const words = moorWords("mcp -e ssh:").map((word) =>
      word.replace("me@box/srv/app", `${account.name}@box${account.home}`),
    );
    const { client } = await connect({ line: words, env: { HOME: home, SSH_AUTH_SOCK: "" } });
    const result = await client.callTool({ name: "terminal", arguments: { command: "id -un; pwd" } });
    expect(result.structuredContent).toMatchObject({
      exit_code: 0,
      output: `${account.name}\n${account.home}\n`,
    });
  });
});
