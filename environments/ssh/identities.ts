/** The keys that may be shown to a host, in the order in which `ssh` shows them. */
import { readFile, stat } from "node:fs/promises";
import type { BaseAgent, IdentityCallback, ParsedKey, SignCallback, SigningRequestOptions } from "ssh2";
import type { HostSettings } from "./config.ts";
import { fingerprint } from "./known-hosts.ts";
import { ssh2 } from "./library.ts";
import { parseKeyFile } from "./private-key.ts";

const { createAgent, utils } = ssh2;

/** A key and who signs with it. */
export interface Identity {
  /** For people: where it is and its fingerprint. */
  readonly label: string;
  readonly source: { readonly agent: BaseAgent } | { readonly key: ParsedKey };
}

export interface Identities {
  readonly identities: readonly Identity[];
  /** Keys that were not tried, each with the reason. */
  readonly skipped: readonly string[];
  /** Where keys were looked for and none was, for people. */
  readonly absent: readonly string[];
}

/** Milliseconds for an agent to list its keys. */
const AGENT_TIMEOUT_MS = 5_000;

/**
 * Agent keys that are also configured, then the agent's others unless `IdentitiesOnly`, then the key files.
 *
 * @param passphrase opens encrypted key files; without it they are skipped
 */
export async function findIdentities(settings: HostSettings, passphrase: string | null): Promise<Identities> {
  const skipped: string[] = [];
  const files: KeyFile[] = [];
  const missing: string[] = [];
  for (const path of settings.identityFiles) {
    const file = await readKeyFile(path, passphrase);
    if (file) files.push(file);
    else missing.push(path);
  }
  const held = settings.agent === null ? [] : await agentKeys(settings.agent, skipped);
  const isFile = (key: Buffer) => (file: KeyFile) => file.publicKey?.equals(key) ?? false;
  const configured = files.flatMap((file) => held.filter(({ publicKey }) => isFile(publicKey)(file)));
  const others = settings.identitiesOnly ? [] : held.filter((key) => !configured.includes(key));
  const identities: Identity[] = [...configured, ...others].map(({ publicKey, comment, agent }) => ({
    label: `${comment || "key"} of the agent (${fingerprint(publicKey)})`,
    source: { agent },
  }));
  for (const { path, key, publicKey, problem } of files) {
    if (publicKey && held.some((other) => other.publicKey.equals(publicKey))) continue;
    if (problem !== null) skipped.push(`${path} ${problem}`);
    else if (key && publicKey)
      identities.push({ label: `${path} (${fingerprint(publicKey)})`, source: { key } });
  }
  const absent = [
    ...(settings.identityFiles.length === 0 ? ["no key file is named"] : []),
    ...(missing.length === 0 ? [] : [`no key at ${missing.join(", ")}`]),
    ...(settings.agent === null ? ["no agent"] : []),
    ...(settings.agent !== null && configured.length + others.length === 0
      ? [`no key to use in the agent at ${settings.agent}`]
      : []),
  ];
  return { identities, skipped, absent };
}

interface KeyFile {
  readonly path: string;
  readonly key: ParsedKey | null;
  readonly publicKey: Buffer | null;
  readonly problem: string | null;
}

async function readKeyFile(path: string, passphrase: string | null): Promise<KeyFile | null> {
  const publicKey = (await readPublicKey(`${path}.pub`)) ?? (await readPublicKey(path));
  let text: Buffer;
  try {
    const { mode, uid } = await stat(path);
    text = await readFile(path);
    // A public key may stand where the private one is expected, when an agent or a token holds that.
    if (uid === process.getuid?.() && (mode & 0o077) !== 0 && text.includes("PRIVATE KEY"))
      return { path, key: null, publicKey, problem: "may be read by others" };
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : null;
    if (code === "ENOENT" || code === "ENOTDIR") {
      return publicKey ? { path, key: null, publicKey, problem: "is not there, and no agent has it" } : null;
    }
    return { path, key: null, publicKey, problem: `cannot be read (${String(code ?? error)})` };
  }
  const key = parseKeyFile(text, passphrase);
  if (typeof key === "string") return { path, key: null, publicKey, problem: key };
  if (!key.isPrivateKey())
    return { path, key: null, publicKey, problem: "is a public key, and no agent has it" };
  return { path, key, publicKey: key.getPublicSSH(), problem: null };
}

async function readPublicKey(path: string): Promise<Buffer | null> {
  let text: Buffer;
  try {
    text = await readFile(path);
  } catch {
    // It only helps to find the key in an agent.
    return null;
  }
  const parsed = utils.parseKey(text);
  if (parsed instanceof Error) return null;
  const key = Array.isArray(parsed) ? parsed[0] : parsed;
  return key?.getPublicSSH() ?? null;
}

interface HeldKey {
  readonly publicKey: Buffer;
  readonly comment: string;
  readonly agent: BaseAgent;
}

async function agentKeys(socket: string, skipped: string[]): Promise<HeldKey[]> {
  const agent = createAgent(socket);
  let timer: NodeJS.Timeout | undefined;
  try {
    const found = await new Promise<readonly unknown[]>((resolve, reject) => {
      timer = setTimeout(
        () => reject(new Error(`no answer within ${AGENT_TIMEOUT_MS} ms`)),
        AGENT_TIMEOUT_MS,
      );
      agent.getIdentities((error, held) => {
        if (error) reject(error);
        else resolve((held ?? []) as readonly unknown[]); // parsed keys or their bytes, as the agent gives them
      });
    });
    const keys = found.flatMap(toKey);
    if (keys.length < found.length)
      skipped.push(`${found.length - keys.length} of the agent's keys, of kinds that are not supported`);
    return keys.map((key) => ({
      publicKey: key.getPublicSSH(),
      comment: key.comment,
      agent: new OneKeyAgent(agent, key),
    }));
  } catch (error) {
    skipped.push(
      `the agent at ${socket} does not answer (${error instanceof Error ? error.message : String(error)})`,
    );
    return [];
  } finally {
    clearTimeout(timer);
  }
}

/** The library hands out parsed keys or their bytes; a kind that it does not know is left out. */
function toKey(found: unknown): ParsedKey[] {
  const parsed = utils.parseKey(found as Buffer); // takes a parsed key as well, and gives it back
  if (parsed instanceof Error) return [];
  return Array.isArray(parsed) ? parsed : [parsed];
}

/** An agent that has one key, so that each is an attempt of its own and can be named when it is refused. */
class OneKeyAgent extends ssh2.BaseAgent<ParsedKey> {
  readonly #agent: BaseAgent;
  readonly #key: ParsedKey;

  constructor(agent: BaseAgent, key: ParsedKey) {
    super();
    this.#agent = agent;
    this.#key = key;
  }

  override getIdentities(callback: IdentityCallback<ParsedKey>): void {
    callback(undefined, [this.#key]);
  }

  override sign(
    key: ParsedKey,
    data: Buffer,
    options: SigningRequestOptions | SignCallback,
    callback?: SignCallback,
  ): void {
    if (typeof options === "function") this.#agent.sign(key, data, options);
    else this.#agent.sign(key, data, options, callback);
  }
}
