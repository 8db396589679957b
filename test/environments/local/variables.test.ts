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
