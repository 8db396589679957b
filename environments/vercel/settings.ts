/** What the caller says about a remote sandbox, and what is missing. */
import { MoorageError } from "../../src/errors.ts";
import type { EgressPolicy } from "../base.ts";
import { toNetworkPolicy } from "./policy.ts";

export interface VercelCredentials {
  readonly token: string;
  readonly teamId: string;
  readonly projectId: string;
}

export interface VercelOptions {
  /**
   * A sandbox of this name is used, and made when there is none; one that was there before is never deleted.
   * @default a new sandbox
   */
  readonly name?: string | null;
  /** Another server that speaks the same API, such as `moor serve`. @default Vercel's own */
  readonly baseUrl?: string;
  /** @default VERCEL_TOKEN, VERCEL_TEAM_ID and VERCEL_PROJECT_ID of this process */
  readonly credentials?: VercelCredentials;
  /** The rules of an allow-list are hosts, `*.` hosts and address ranges, without ports. @default "open" */
  readonly egress?: EgressPolicy;
  readonly runtime?: string;
  /** Life of a session between two prolongations, milliseconds. @default limits.vercelTimeoutMs */
  readonly sessionTimeoutMs?: number;
  /**
   * The server's first word on a command; then its end is unknown, milliseconds. After as long a silence later on it is
   * asked whether the command still runs. @default limits.vercelAnswerMs
   */
  readonly answerTimeoutMs?: number;
}

const VARIABLES = {
  token: "VERCEL_TOKEN",
  teamId: "VERCEL_TEAM_ID",
  projectId: "VERCEL_PROJECT_ID",
} as const;

/** @throws {MoorageError} VERCEL_CREDENTIALS_MISSING naming each variable that is not set */
export function readCredentials(env: Readonly<Record<string, string | undefined>>): VercelCredentials {
  const missing = Object.values(VARIABLES).filter((name) => (env[name] ?? "") === "");
  if (missing.length > 0) {
    throw new MoorageError(
      "VERCEL_CREDENTIALS_MISSING",
      `Cannot use Vercel Sandbox: ${missing.join(", ")} not set`,
    );
  }
  const { token, teamId, projectId } = VARIABLES;
  return { token: env[token] ?? "", teamId: env[teamId] ?? "", projectId: env[projectId] ?? "" };
}

/** @throws {MoorageError} INVALID_SPEC; UNSUPPORTED for an egress policy that the API cannot express */
export function checkVercelOptions({ baseUrl, name, egress = "open" }: VercelOptions): void {
  toNetworkPolicy(egress);
  const url = baseUrl === undefined ? null : URL.parse(baseUrl);
  if (baseUrl !== undefined && !(url && /^https?:$/.test(url.protocol))) {
    throw new MoorageError(
      "INVALID_SPEC",
      `Cannot use "${baseUrl}" as a sandbox server: it is no http address`,
    );
  }
  if (name === "") throw new MoorageError("INVALID_SPEC", "Cannot use a sandbox without a name");
}
