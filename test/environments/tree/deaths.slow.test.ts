/** Fifty deaths at random points, a quarter of them in each action. */
import { it } from "vitest";
import { ACTIONS, surviveDeaths } from "./deaths.ts";
import { randomFrom } from "./picture.ts";

const DEATHS = 13;
/** A slow machine sees fewer of them. */
const BUDGET_MS = 28_000;
/** A round of the worker takes about as long. */
const LONGEST_MS = 700;

it.each(ACTIONS)(
  "SIGKILL at up to thirteen random points of %s leaves whole files each time (SY-11, CP-08)",
  async (action) => {
    const random = randomFrom(ACTIONS.indexOf(action) + 1);
    await surviveDeaths(
      action,
      Array.from({ length: DEATHS }, () => random(LONGEST_MS)),
      BUDGET_MS,
    );
  },
);
