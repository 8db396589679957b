/** Runs once before the tests that need a Docker engine, and tells them whether they have one. */
import type { TestProject } from "vitest/node";
import "./images.ts";
import { prepareHost, unmetRequirements } from "./prepare.ts";
import { parseRequired } from "./required.ts";

export default async function setup(project: TestProject): Promise<void> {
  const required = parseRequired(process.env.MOORAGE_REQUIRE);
  const report = await prepareHost({ log: (line) => console.log(`host: ${line}`) });
  const unmet = unmetRequirements(report, required);
  if (unmet.length > 0) throw new Error(`Required, but not tested: ${unmet.join("; ")}`);
  const { docker } = report.backends;
  project.provide(
    "engine",
    docker.tested ? { available: true } : { available: false, reason: docker.reason },
  );
}
