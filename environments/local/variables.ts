/** Which of the host's variables commands on this machine may see. */

/** Parts of a name, between underscores, that mark a credential. */
const SECRET_PARTS = new Set([
  "KEY",
  "KEYS",
  "APIKEY",
  "TOKEN",
  "TOKENS",
  "SECRET",
  "SECRETS",
  "PASSWORD",
  "PASSWD",
  "PASSPHRASE",
  "PASS",
  "PWD",
  "CREDENTIAL",
  "CREDENTIALS",
  "CREDS",
  "AUTH",
  "COOKIE",
  "PAT",
  "DSN",
  "JWT",
]);

/** Names that hold such a part and are no credential. */
const HARMLESS = new Set(["PWD", "OLDPWD", "SSH_AUTH_SOCK", "SSH_AUTH_INFO"]);

/** Forms by which a value shows that it is a credential, whatever its name. */
const SECRET_VALUES = [
  /:\/\/[^/\s:@]*:[^/\s@]+@/,
  /-----BEGIN [A-Z ]*PRIVATE KEY-----/,
  /\b(?:sk-|sk_live_|rk_live_|ghp_|gho_|ghs_|ghu_|github_pat_|glpat-|xox[abprs]-|npm_|hf_|AKIA|ASIA|AIza)[A-Za-z0-9_-]{12,}/,
  /^eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\./,
];

/** Whether a variable looks like a credential, by the parts of its name or by the form of its value. */
export function isSecretVariable(name: string, value: string): boolean {
  if (HARMLESS.has(name)) return false;
  const parts = name.toUpperCase().split(/[^A-Z0-9]+/);
  if (parts.some((part) => SECRET_PARTS.has(part) || /(?:TOKEN|SECRET|PASSWORD|APIKEY)$/.test(part)))
    return true;
  return SECRET_VALUES.some((pattern) => pattern.test(value));
}

/** The host's variables without credentials and without those of our own and of the package manager that started us. */
export function scrubbedVariables(env: NodeJS.ProcessEnv): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const [name, value] of Object.entries(env)) {
    if (value === undefined || /^(?:MOORAGE_|MOOR_|npm_|NODE_OPTIONS$|NODE_CHANNEL)/i.test(name)) continue;
    if (!isSecretVariable(name, value)) kept[name] = value;
  }
  return kept;
}
