/** Failures as the Vercel Sandbox API tells them: a status and `{"error": {"code", "message"}}`. */
import { isMoorageError, toMoorageError } from "../errors.ts";

/** A refusal or failure with its HTTP status. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.status = status;
    this.code = code;
  }

  body(): { readonly error: { readonly code: string; readonly message: string } } {
    return { error: { code: this.code, message: this.message } };
  }
}

/** What this server cannot do for anybody. */
export function unsupported(what: string): ApiError {
  return new ApiError(400, "unsupported", `This server does not offer ${what}`);
}

export function badRequest(message: string): ApiError {
  return new ApiError(400, "bad_request", message);
}

export function notFound(what: string): ApiError {
  return new ApiError(404, "not_found", `There is no such ${what}`);
}

/**
 * Any error as one of the API's. Clients send a request again after 5xx, so only what provably did nothing may be one.
 *
 * @param repeatable whether the request may be sent twice without harm
 */
export function toApiError(error: unknown, repeatable: boolean): ApiError {
  if (error instanceof ApiError) return error;
  const known = toMoorageError(error);
  const code = known.code.toLowerCase();
  const status = statusOf(error, known.kind);
  return new ApiError(status >= 500 && !repeatable ? 409 : status, code, known.message, error);
}

function statusOf(error: unknown, kind: string): number {
  if (isMoorageError(error, "ENVIRONMENT_STOPPED") || isMoorageError(error, "ENVIRONMENT_LOST")) return 410;
  if (isMoorageError(error, "FILE_MISSING")) return 404;
  switch (kind) {
    case "fix-input":
      return 400;
    case "refused":
      return 403;
    case "reconcile":
      return 409;
    case "bug":
      return 500;
    default:
      return 503;
  }
}
