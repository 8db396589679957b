import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { OPTION_HELP, PAGES } from "../docs/generate.ts";
import type { BackendName } from "../environments/spec.ts";
import { CONFIG, parseConfig } from "../src/config.ts";
import { makeEnvironment } from "../src/places.ts";
import { FORMS } from "../src/spec.ts";
import { chooseToolsets } from "../src/toolsets.ts";

const ROOT = join(import.meta.dirname, "..");

describe("generated pages", () => {
  it.each(Object.entries(PAGES))("%s is what the sources say (npm run docs writes it)", (path, page) => {
    const text = readFileSync(join(ROOT, path), "utf8");
    // The formatter has its own mind about JSON.
    if (path.endsWith(".json")) expect(JSON.parse(text)).toEqual(JSON.parse(page()));
    else expect(text).toBe(page());
  });

  it("docs/configuration.md names options that every backend which it names takes", async () => {
    const targets: Readonly<Record<BackendName, string>> = {
      local: "local",
      docker: "docker:node:24",
      "docker+attach": "docker+attach:web",
      ssh: "ssh://me@box",
      vercel: "vercel:one",
    };
    const stateDir = await mkdtemp(join(tmpdir(), "moorage-docs-"));
    onTestFinished(() => rm(stateDir, { recursive: true }));
    const env = { VERCEL_TOKEN: "t", VERCEL_TEAM_ID: "team_t", VERCEL_PROJECT_ID: "prj_t" };
    for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value);
    onTestFinished(() => void vi.unstubAllEnvs());
    for (const [backend, { options }] of Object.entries(FORMS)) {
      for (const option of options) {
        const { example } = OPTION_HELP[option];
        // The page says where a policy is an error.
        const value = option === "egress" && !/^(docker|vercel)$/.test(backend) ? "open" : example;
        // A key of the table just walked.
        const spec = `${targets[backend as BackendName]}?${option}=${value}`;
        const environment = await makeEnvironment(spec, { stateDir });
        expect(environment.backend, spec).toBeTruthy();
        await environment.stop();
      }
    }
  });

  it("docs/configuration.md has an example of every key that the schema takes", async () => {
    const page = readFileSync(join(ROOT, "docs/configuration.md"), "utf8");
    const [, example = ""] = /```yaml\n([\s\S]*?)```/.exec(page) ?? [];
    const config = await parseConfig(example, "example");
    const rest = Object.keys(CONFIG.shape).filter((key) => !(key in config));
    expect(rest).toEqual(["workspace", "disabledToolsets"]);
    const known = new Set(["files", "terminal"]);
    const { toolsets = [], toolsetIncludes = {} } = config;
    const isOn = chooseToolsets({ enabled: toolsets, includes: toolsetIncludes }, known);
    expect([...known].filter(isOn)).toEqual(["files", "terminal"]);
  });

  it("docs/limits.md explains every limit in words", () => {
    const rows = (PAGES["docs/limits.md"]?.() ?? "").split("\n").filter((line) => line.startsWith("| `"));
    expect(rows.length).toBeGreaterThan(30);
    for (const row of rows) expect(row).toMatch(/^\| `[a-zA-Z]+` \| [\d,]+ \| .{12,} \|$/);
  });
});
