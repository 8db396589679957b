/** Sandboxes that are folders of this machine. */
import { serveLocal } from "../serve/served.ts";
import { describeVercel } from "./vercel.ts";

describeVercel({ name: "vercel over local", serve: () => serveLocal() });
