/** Who may ask a server of ours: whoever brings a token that it knows. */
import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

/** Finds the grant of a request's bearer token, in a time that tells nothing about the tokens; null without one. */
export function grantOf<Grant extends { readonly token: string }>(
  request: IncomingMessage,
  grants: readonly Grant[],
): Grant | null {
  const [, token = ""] = /^Bearer +(\S+)$/i.exec(request.headers.authorization ?? "") ?? [];
  const given = digest(token);
  const matches = grants.filter((grant) => timingSafeEqual(digest(grant.token), given));
  return matches[0] ?? null;
}
