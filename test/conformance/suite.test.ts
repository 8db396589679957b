/** The suite itself: what it is made of, what its gaps mean, and that its page shows what is run. */
import { readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { AREAS, type CaseName, type Conformance } from "./index.ts";

const titles = Object.values(AREAS).flatMap((cases) => Object.keys(cases));

describe("the conformance suite", () => {
  it("names each case once", () => {
    expect(titles.filter((title, index) => titles.indexOf(title) !== index)).toEqual([]);
  });

  it("names claims, not wishes", () => {
    expect(titles.filter((title) => /\bshould\b|^it\b/i.test(title))).toEqual([]);
  });

  it("compiles no gap that is not a case", () => {
    const known: CaseName = "exec() runs several lines";
    const gaps: NonNullable<Conformance["gaps"]> = {
      [known]: "a reason",
      // @ts-expect-error There is no such case.
      "exec() makes coffee": "a reason",
    };
    expect(Object.keys(gaps).filter((name) => titles.includes(name))).toEqual([known]);
  });
});

describe("docs/write-a-backend.md", () => {
  it.each(["nice-backend.ts", "nice-backend.test.ts"])("shows examples/%s as it is run", async (name) => {
    const root = new URL("../../", import.meta.url);
    const page = await readFile(new URL("docs/write-a-backend.md", root), "utf8");
    const example = await readFile(new URL(`examples/${name}`, root), "utf8");
    expect(page).toContain(`\`\`\`ts\n${example}\`\`\`\n`);
  });
});
