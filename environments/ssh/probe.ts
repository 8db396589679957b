/** The first question to a host: whether a shell of ours starts there, and where the workspace is. */
import { MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import { createNonce, FrameSplitter } from "../shell/frames.ts";
import { quote } from "../shell/quote.ts";
import { scriptLine } from "./bootstrap.ts";
import { channelStream } from "./channel-stream.ts";
import type { OpenedChannel } from "./connections.ts";

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
  try {
    const answer = new Promise<readonly string[]>((resolve, reject) => {
      timer = setTimeout(
        () =>
          reject(
            new MoorageError(
              "SSH_SESSION_REFUSED",
              `Cannot open a shell as ${account}: no shell answered within ${limits.openTimeoutMs} ms`,
            ),
          ),
        limits.openTimeoutMs,
      );
      stream.stdout.on("data", (chunk: Buffer) => {
        for (const part of splitter.push(chunk)) if (!Buffer.isBuffer(part)) resolve(part.fields);
      });
      void stream.ended.then((end) =>
        reject(
          end.lost ??
            new MoorageError(
              "SSH_SESSION_REFUSED",
              `Cannot open a shell as ${account}: it ended with code ${end.exitCode} before it answered`,
            ),
        ),
      );
    });
    stream.stdin.write(scriptLine(nonce, script), "latin1");
    const [path = "", real = ""] = (await answer).map((field) =>
      Buffer.from(field, "latin1").toString("utf8"),
    );
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
