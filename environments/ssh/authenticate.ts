/** Proves to a host who we are: what the server allows of none, keys and an explicitly given password, in turn. */
import type { AnyAuthMethod, AuthenticationType, AuthHandlerMiddleware } from "ssh2";
import { MoorageError } from "../../src/errors.ts";
import type { HostSettings } from "./config.ts";
import { findIdentities, type Identities, type Identity } from "./identities.ts";

/** Secrets that the caller gave in so many words; nothing is ever asked of a terminal. */
export interface Secrets {
  readonly password: string | null;
  readonly passphrase: string | null;
}

interface Attempt {
  readonly name: string;
  /** As the server lists it. */
  readonly method: "publickey" | "password" | "keyboard-interactive";
  readonly make: () => AnyAuthMethod;
}

/** One authentication, from its first attempt until the server takes one or none is left. */
export class Authentication {
  readonly #settings: HostSettings;
  readonly #attempts: Attempt[];
  readonly #skipped: readonly string[];
  readonly #absent: readonly string[];
  readonly #tried: string[] = [];
  #allowed: readonly string[] = [];
  #prompt: string | null = null;
  #answered = false;

  private constructor(settings: HostSettings, attempts: Attempt[], { skipped, absent }: Identities) {
    this.#settings = settings;
    this.#attempts = attempts;
    this.#skipped = skipped;
    this.#absent = absent;
  }

  static async prepare(settings: HostSettings, secrets: Secrets): Promise<Authentication> {
    const found = await findIdentities(settings, secrets.passphrase);
    const username = settings.user;
    const attempts: Attempt[] = found.identities.map((identity) => keyAttempt(username, identity));
    const authentication = new Authentication(settings, attempts, found);
    const { password } = secrets;
    let isAnswered = false;
    if (password !== null) {
      attempts.push(
        { name: "password", method: "password", make: () => ({ type: "password", username, password }) },
        {
          name: "keyboard-interactive",
          method: "keyboard-interactive",
          make: () => ({
            type: "keyboard-interactive",
            username,
            prompt: (_name, instructions, _language, prompts, finish) => {
              const [only] = prompts;
              // Asked again, it was wrong, or it is another secret that is wanted: once too often locks accounts.
              const isPassword =
                !isAnswered &&
                prompts.length === 1 &&
                only?.echo === false &&
                !/new|change/i.test(only.prompt);
              isAnswered ||= isPassword;
              if (!isPassword && (only || instructions !== ""))
                authentication.#prompt = `${instructions} ${only?.prompt ?? ""}`.trim();
              finish(isPassword ? [password] : []);
            },
          }),
        },
      );
    }
    return authentication;
  }

  /** Whether the server has answered to anything. */
  get begun(): boolean {
    return this.#answered;
  }

  /** Returns what to try next, false when nothing is left. */
  readonly handler: AuthHandlerMiddleware = (allowed) => this.#next(allowed);

  /** The refusal in words: what was tried, what the server would take, what could not be tried. */
  refusal(reason: string | null, banner: string | null): MoorageError {
    const { user, host, port } = this.#settings;
    const expiry = [this.#prompt, banner].find((text) => text !== null && isExpiry(text));
    const sought = this.#allowed.includes("publickey") ? this.#absent : [];
    const nothing = `nothing could be tried${sought.length === 0 ? "" : ` (${sought.join("; ")})`}`;
    const tried = this.#tried.length === 0 ? nothing : `tried ${this.#tried.join(", ")}`;
    const parts = [
      ...(reason === null ? [] : [reason]),
      tried,
      ...(this.#allowed.length === 0 ? [] : [`the server accepts ${this.#allowed.join(", ")}`]),
      ...(this.#skipped.length === 0 ? [] : [`not tried: ${this.#skipped.join(", ")}`]),
      ...(this.#prompt === null ? [] : [`the server asked ${JSON.stringify(this.#prompt)}`]),
      ...(banner === null ? [] : [`the server said ${JSON.stringify(banner.trim())}`]),
    ];
    return new MoorageError(
      expiry === undefined ? "SSH_AUTHENTICATION_FAILED" : "SSH_PASSWORD_EXPIRED",
      `Cannot authenticate to ${user}@${host}:${port}: ${parts.join("; ")}`,
      { details: { tried: this.#tried, accepted: this.#allowed, skipped: this.#skipped } },
    );
  }

  /** The server wants a new password before anything else. */
  expired(prompt: string): MoorageError {
    const { user, host, port } = this.#settings;
    return new MoorageError(
      "SSH_PASSWORD_EXPIRED",
      `Cannot authenticate to ${user}@${host}:${port}: the server demands a new password${prompt === "" ? "" : `: ${JSON.stringify(prompt.trim())}`}`,
    );
  }

  #next(allowed: readonly AuthenticationType[] | null): AnyAuthMethod | false {
    // Asks what is allowed; an account without any lock lets in.
    if (allowed === null) return { type: "none", username: this.#settings.user };
    this.#answered = true;
    this.#allowed = allowed;
    // One that is not allowed now may be after another succeeded in part.
    const at = this.#attempts.findIndex(({ method }) => this.#allowed.includes(method));
    const [attempt] = at < 0 ? [] : this.#attempts.splice(at, 1);
    if (!attempt) return false;
    this.#tried.push(attempt.name);
    return attempt.make();
  }
}

/** Whether a server's words are a demand for a new password. */
export function isExpiry(text: string): boolean {
  return /password.{0,40}(?:expired|change)|(?:expired|change|new).{0,40}password/is.test(text);
}

function keyAttempt(username: string, { label, source }: Identity): Attempt {
  return {
    name: `publickey ${label}`,
    method: "publickey",
    make: () =>
      "agent" in source
        ? { type: "agent", username, agent: source.agent }
        : { type: "publickey", username, key: source.key },
  };
}
