/** Sandboxes that are folders of this machine: the areas that wait for processes. */
import { serveLocal } from "../serve/served.ts";
import { describeVercel, WAITING_AREAS } from "./vercel.ts";

describeVercel({ name: "vercel over local", serve: () => serveLocal(), areas: WAITING_AREAS });
