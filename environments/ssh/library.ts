/**
 * The SSH library, loaded so that its native part cannot end the process. Its ciphers are objects that Node's own header
 * wraps, since Node 24 with a destructor that asks for the current context. A collection that runs as a task of its own
 * has none: the process is aborted when it frees a cipher, which every connection that closes and every new agreement
 * on keys leaves behind. So none is ever freed; what is kept of each is a few hundred bytes.
 *
 * @see https://github.com/nodejs/node/blob/main/src/node_object_wrap.h
 */
import { createRequire } from "node:module";
import type Library from "ssh2";

const CIPHERS = "ssh2/lib/protocol/crypto/build/Release/sshcrypto.node";
/** Reads the classes of the native part once, when it is loaded. */
const USER = "ssh2/lib/protocol/crypto.js";

const load = createRequire(import.meta.url);
const kept = new Set<unknown>();

keepCiphers();

export const ssh2: typeof Library = load("ssh2");

function keepCiphers(): void {
  let classes: Record<string, unknown>;
  try {
    classes = load(CIPHERS);
  } catch {
    // Built without it, which costs speed alone.
    return;
  }
  const isRead = load.cache[load.resolve(USER)] !== undefined;
  for (const [name, cipher] of Object.entries(classes)) {
    if (typeof cipher !== "function") continue;
    if (isRead) keepOnUse(cipher.prototype);
    else
      classes[name] = new Proxy(cipher, {
        construct: (target, args) => keep(Reflect.construct(target, args)),
      });
  }
}

function keep<Kept>(cipher: Kept): Kept {
  kept.add(cipher);
  return cipher;
}

/** Somebody has loaded the library before us: what its classes make is kept as soon as it is used. */
function keepOnUse(prototype: Record<string, unknown>): void {
  for (const name of Object.getOwnPropertyNames(prototype)) {
    const method = prototype[name];
    if (name === "constructor" || typeof method !== "function") continue;
    prototype[name] = function (this: unknown, ...args: unknown[]): unknown {
      keep(this);
      return Reflect.apply(method, this, args);
    };
  }
}
