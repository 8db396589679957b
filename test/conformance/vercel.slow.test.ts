/** Sandboxes that are folders of this machine: the areas that take long. */
import { serveLocal } from "../serve/served.ts";
import { areasWithout, WAY_AREAS } from "./areas.ts";
import { describeVercel } from "./vercel.ts";

describeVercel({ name: "vercel over local", serve: () => serveLocal(), areas: areasWithout(WAY_AREAS) });
