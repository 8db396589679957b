import { it } from "vitest";
import { ACTIONS, surviveDeaths } from "./deaths.ts";

it.each(ACTIONS)("SIGKILL during %s leaves whole files, and the next start repairs", async (action) => {
  await surviveDeaths(action, [200]);
});
