import { describe, expect, it } from "vitest";
import { isSecretVariable, scrubbedVariables } from "../../../environments/local/variables.ts";

describe("isSecretVariable()", () => {
  it.each([
    ["OPENAI_API_KEY", "x"],
    ["ANTHROPIC_AUTH_TOKEN", "x"],
    ["GITHUB_TOKEN", "x"],
    ["AWS_SECRET_ACCESS_KEY", "x"],
    ["PGPASSWORD", "x"],
    ["DB_PASS", "x"],
    ["npm_config__authToken", "x"],
    ["GOOGLE_APPLICATION_CREDENTIALS", "/x.json"],
    ["DATABASE_URL", "postgres://user:hunter2@db/app"],
    ["SOMETHING", "ghp_abcdefghijklmnop0123"],
    ["CERT", "-----BEGIN RSA PRIVATE KEY-----\nabc"],
    ["CERT", "-----BEGIN PGP PRIVATE KEY BLOCK-----\nabc"],
    ["awsAccessKey", "x"],
    ["PRIVATEKEY", "x"],
    ["SSHPASS", "x"],
    ["HTTP_AUTHORIZATION", "x"],
    ["MYSQL_PASSWORDS", "x"],
    ["SESSION_COOKIES", "x"],
    ["SLACK_URL", "https://hooks.slack.com/services/T0/B0/abc"],
    ["STORAGE", "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=abc=="],
    ["DB", "Server=db;User Id=a;Password=hunter2;"],
    ["DB", "host=db user=a password=hunter2"],
    ["HEADER", "Bearer abcdefghijkl"],
    ["REPOSITORY", "https://0123456789abcdef0123456789abcdef@sentry.example/1"],
    ["REDIS", "redis://:hunter2@cache:6379"],
    ["SOMETHING", "ya29.a0AbCdEfGhIjKlMnOp"],
    ["SOMETHING", "xapp-1-A0123456789-abc"],
    ["SOMETHING", "pypi-AgEIcHlwaS5vcmcCJDAx"],
    ["SOMETHING", "hvs.CAESIabcdefghijklmno"],
  ])("takes %s for a credential", (name, value) => {
    expect(isSecretVariable(name, value)).toBe(true);
  });

  it.each([
    ["PATH", "/usr/bin"],
    ["PWD", "/tmp"],
    ["SSH_AUTH_SOCK", "/run/agent"],
    ["KEYBOARD", "de"],
    ["MONKEY", "1"],
    ["AUTHOR", "me"],
    ["HOMEPAGE", "https://example.org/a@b"],
    ["PASSENGERS", "3"],
    ["VIRTUAL_ENV", "/venv"],
    ["TURKEY", "1"],
    ["PASSIVE_MODE", "1"],
    ["BASIC", "basic usage"],
    ["REPOSITORY", "ssh://git@example.org/a.git"],
    ["LS_COLORS", "rs=0:di=01;34:ln=01;36:*.sig=00;90:"],
    ["XDG_SESSION_ID", "3"],
  ])("takes %s for an ordinary variable", (name, value) => {
    expect(isSecretVariable(name, value)).toBe(false);
  });
});

describe("scrubbedVariables()", () => {
  it("drops credentials, our own variables and the package manager's", () => {
    expect(
      scrubbedVariables({
        HOME: "/h",
        API_KEY: "k",
        MOORAGE_HOME: "/m",
        npm_lifecycle_event: "test",
        EMPTY: "",
        GONE: undefined,
      }),
    ).toEqual({ HOME: "/h", EMPTY: "" });
  });
});
