/** Credentials that the proxy puts into requests to one host, so that the environment never holds them. */
import { MoorageError } from "../../src/errors.ts";
import type { EgressCredential } from "../base.ts";
import type { Host } from "./host.ts";
import { compilePolicy } from "./policy.ts";

export interface Credential {
  readonly tls: boolean;
  readonly header: string;
  readonly value: string;
  readonly isFor: (host: Host, port: number) => boolean;
}

/** Set by the proxy itself: a credential there would change where a request goes or where it ends. */
const OWN_HEADERS = new Set(["host", "connection", "content-length", "transfer-encoding"]);

/** @throws {MoorageError} INVALID_SPEC; the message never holds the value */
export function readCredential({ host, header, value, tls = false }: EgressCredential): Credential {
  const policy = compilePolicy({ allow: [host] });
  if (!/^[A-Za-z0-9!#$%&'*+.^_`|~-]+$/.test(header) || OWN_HEADERS.has(header.toLowerCase()))
    throw new MoorageError(
      "INVALID_SPEC",
      `Cannot put a credential into the header ${JSON.stringify(header)}`,
    );
  if (!/^[\x20-\x7e\x80-\xff]+$/.test(value))
    throw new MoorageError(
      "INVALID_SPEC",
      `Cannot put the credential for "${host}" into a header: it holds an odd byte`,
    );
  return { tls, header, value, isFor: (asked, port) => policy.judge(asked, port).allowed };
}

export function credentialFor(
  credentials: readonly Credential[],
  { host, port }: { readonly host: Host; readonly port: number },
): Credential | null {
  return credentials.find(({ isFor }) => isFor(host, port)) ?? null;
}
