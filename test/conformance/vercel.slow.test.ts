/** Sandboxes that are folders of this machine: the areas that take long. */
import { serveLocal } from "../serve/served.ts";
import { describeVercel, LONG_AREAS } from "./vercel.ts";

describeVercel({ name: "vercel over local", serve: () => serveLocal(), areas: LONG_AREAS });
