/** Sandboxes that are containers with BusyBox alone: the areas that tell most of a way through an API and back. */
import { inject } from "vitest";
import { BUSYBOX_IMAGE } from "../host/images.ts";
import { serveDocker } from "../serve/served-docker.ts";
import { describeVercel, SH_GAPS } from "./vercel.ts";

const engine = inject("engine");

describeVercel({
  name: `vercel over docker ${BUSYBOX_IMAGE}`,
  serve: () => serveDocker(BUSYBOX_IMAGE),
  // All of them are asked by the slow suite.
  gaps: SH_GAPS,
  areas: ["argv", "health"],
  ...(!engine.available && { unavailable: engine.reason }),
});
