/** The first question to a host: whether a shell of ours starts there, and where the workspace is. */
import { MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import { createNonce, FrameSplitter } from "../shell/frames.ts";
import { quote } from "../shell/quote.ts";
import { readyMark, scriptLine } from "./bootstrap.ts";
import { channelStream } from "./channel-stream.ts";
import type { OpenedChannel } from "./connections.ts";

/** Of what a shell says, the last is kept to be quoted. */
const SAID_CHARACTERS = 2_000;

/**
 * Enters the workspace and tells its absolute path, links in it left as they are named.
 *
 * @throws {MoorageError} WORKDIR_MISSING, INVALID_SPEC for a kernel folder, SSH_SESSION_REFUSED, SSH_PASSWORD_EXPIRED,
 * SSH_UNREACHABLE
 */
export async function findWorkspace(
  opened: OpenedChannel,
  account: string,
  workspace: string,
): Promise<string> {
  const nonce = createNonce();
  const splitter = new FrameSplitter(nonce);
  const stream = channelStream(opened.channel, { connection: opened.connection, account, nonce });
  const below = workspace === "~" ? "" : workspace.startsWith("~/") ? workspace.slice(2) : null;
  const folder = below === null ? quote(workspace) : `"\${HOME:-/}"${below === "" ? "" : `/${quote(below)}`}`;
  const script = `cd -- ${folder} 2>/dev/null && p=$PWD && r=$(pwd -P)
printf '\\000${nonce}w%s\\000%s\\000${nonce};' "\${p-}" "\${r-}"`;
  let timer: NodeJS.Timeout | undefined;
  /** What came beside the answer, for whom there is none. */
  let said = "";
  const announced = Promise.withResolvers<true>();
  const refuse = (why: string): MoorageError =>
    new MoorageError("SSH_SESSION_REFUSED", `Cannot open a shell as ${account}: ${why}${quoted(said)}`, {
      details: { said },
    });
  try {
    const answer = new Promise<readonly string[]>((resolve, reject) => {
      timer = setTimeout(
        () => reject(refuse(`no shell answered within ${limits.openTimeoutMs} ms`)),
        limits.openTimeoutMs,
      );
      const note = (bytes: Buffer) => {
        said = (said + bytes.toString("latin1")).slice(-SAID_CHARACTERS);
      };
      stream.stderr.on("data", (chunk: Buffer) => {
        note(chunk);
        if (said.includes(readyMark(nonce))) announced.resolve(true);
      });
      stream.stdout.on("data", (chunk: Buffer) => {
        for (const part of splitter.push(chunk)) {
          if (Buffer.isBuffer(part)) note(part);
          else resolve(part.fields);
        }
      });
      void stream.ended.then((end) =>
        reject(end.lost ?? refuse(`it ended with code ${end.exitCode} before it answered`)),
      );
    });
    // With its end, a file of the account's that reads standard input, or another shell that it starts, is not waited for.
    stream.stdin.write(scriptLine(nonce, script), "latin1");
    stream.stdin.end();
    const fields = await answer;
    // The shells to come tell by standard error, too, where they are.
    const isHeard = await Promise.race([announced.promise, stream.ended.then(() => false)]);
    if (!isHeard) throw refuse("its files send standard error elsewhere");
    const [path = "", real = ""] = fields.map((field) => Buffer.from(field, "latin1").toString("utf8"));
    if (!path.startsWith("/"))
      throw new MoorageError(
        "WORKDIR_MISSING",
        `Cannot work in "${workspace}" on ${account}: there is no such folder, or it may not be entered`,
      );
    if (/^\/(?:proc|sys|dev\/fd)(?:\/|$)/.test(real))
      throw new MoorageError(
        "INVALID_SPEC",
        `Cannot work in "${workspace}" on ${account}: it is a folder of the kernel's`,
      );
    return path;
  } finally {
    clearTimeout(timer);
    await stream.close();
  }
}

/** What was said, to follow a reason; without our own marks. */
function quoted(said: string): string {
  const text = Buffer.from(said.replace(/\0[^\0]*\0/g, ""), "latin1")
    .toString("utf8")
    .trim();
  return text === "" ? "" : `; it said ${JSON.stringify(text.slice(-1_000))}`;
}
