/**
 * Sandboxes that are folders of this machine. What takes long is asked by the slow suite, and the core of what waits
 * for processes by `vercel-processes.test.ts`.
 */
import { serveLocal } from "../serve/served.ts";
import { WAY_AREAS } from "./areas.ts";
import { describeVercel } from "./vercel.ts";

describeVercel({ name: "vercel over local", serve: () => serveLocal(), areas: WAY_AREAS });
