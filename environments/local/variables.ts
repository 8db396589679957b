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
  "AUTHORIZATION",
  "BEARER",
  "COOKIES",
  "PASSWORDS",
  "PASSCODE",
  "OTP",
  "SSHPASS",
  "KEYFILE",
  "KEYTAB",
  "WEBHOOK",
  "NETRC",
  "HTPASSWD",
]);

/** Ends of a part that is written as one word with what it is for. */
const SECRET_ENDS =
  /(?:TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?|(?:API|ACCESS|PRIVATE|PRIV|SECRET|SIGNING|ENCRYPTION|MASTER|ACCOUNT|AUTH|SSH|DEPLOY)_?KEYS?)$/;

/** Names that hold such a part and are no credential. */
const HARMLESS = new Set(["PWD", "OLDPWD", "SSH_AUTH_SOCK", "SSH_AUTH_INFO"]);

/** Forms by which a value shows that it is a credential, whatever its name. */
const SECRET_VALUES = [
  /:\/\/[^/\s:@]*:[^/\s@]+@/,
  // A name alone is one where nobody writes a name that long.
  /:\/\/[A-Za-z0-9_%.~+-]{20,}@/,
  /-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----/,
  /\bAGE-SECRET-KEY-1[A-Z0-9]{20,}/,
  /(?:^|[;&?\s])(?:password|pwd|passwd|accountkey|sharedaccesskey|sharedaccesssignature|client_secret|access_token|api_?key|sig)=[^;&\s]{3,}/i,
  /^(?:Bearer|Basic|token)\s+[A-Za-z0-9+/=._~-]{8,}$/i,
  /:\/\/hooks\.slack\.com\/|:\/\/(?:[a-z]+\.)?discord(?:app)?\.com\/api\/webhooks\//,
  /\b(?:sk-|sk_(?:live|test)_|rk_(?:live|test)_|whsec_|gh[opsur]_|github_pat_|gl(?:pat|rt|dt|ft|cbt|ptt)-|xox[abeprs]-|xapp-|npm_|pypi-|hf_|AKIA|ASIA|AIza|ya29\.|GOCSPX-|dop_v1_|dckr_(?:pat|oat)_|shp(?:at|ca|pa|ss)_|sntrys_|lin_api_|tskey-|hv[sb]\.|SG\.|gsk_|r8_|pat-na1-)[A-Za-z0-9_.-]{12,}/,
  /^eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\./,
];

/** Whether a variable looks like a credential, by the parts of its name or by the form of its value. */
export function isSecretVariable(name: string, value: string): boolean {
  if (HARMLESS.has(name)) return false;
  const parts = name.toUpperCase().split(/[^A-Z0-9]+/);
  if (parts.some((part) => SECRET_PARTS.has(part) || SECRET_ENDS.test(part))) return true;
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
