/** Credentials that only the proxy holds: the environment's variable of that name has a placeholder. */
import { MoorageError } from "../../src/errors.ts";
import type { EgressCredential, EgressPolicy } from "../base.ts";

/** A credential of this machine, by the name of the variable that holds it. */
export interface HeldCredential {
  /** A rule, as in an allow-list. */
  readonly host: string;
  /** Name of the variable, here with the value, in the environment with a placeholder. */
  readonly variable: string;
  /** @default "Authorization" */
  readonly header?: string | undefined;
  /** What the header holds; `{}` stands for the value. @default "Bearer {}" */
  readonly format?: string | undefined;
  /** Whether requests for `http://host` leave this machine as HTTPS. @default false */
  readonly tls?: boolean | undefined;
}

/** What programs in the environment find in the place of a credential. */
export const CREDENTIAL_PLACEHOLDER = "held-by-the-egress-proxy";

/**
 * Reads the values.
 *
 * @returns credentials for the proxy, and the variables of the environment
 * @throws {MoorageError} INVALID_SPEC when a variable is not set here or there is no proxy to hold it
 */
export function takeCredentials(
  held: readonly HeldCredential[],
  policy: EgressPolicy,
  env: Readonly<Record<string, string | undefined>>,
): { readonly credentials: readonly EgressCredential[]; readonly variables: Record<string, string> } {
  if (held.length > 0 && typeof policy === "string") {
    throw new MoorageError(
      "INVALID_SPEC",
      `Cannot hold credentials back: with the egress policy "${policy}" there is no proxy to put them in`,
    );
  }
  const credentials = held.map(
    ({ host, variable, header = "Authorization", format = "Bearer {}", tls = false }) => {
      const value = env[variable];
      if (value === undefined || value === "") {
        throw new MoorageError(
          "INVALID_SPEC",
          `Cannot hold the credential for "${host}": the variable "${variable}" is not set here`,
        );
      }
      return { host, header, value: format.split("{}").join(value), tls };
    },
  );
  const variables = Object.fromEntries(held.map(({ variable }) => [variable, CREDENTIAL_PLACEHOLDER]));
  return { credentials, variables };
}
