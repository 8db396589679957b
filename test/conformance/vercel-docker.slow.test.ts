/** Sandboxes that are containers: with BusyBox alone, and with bash and the usual programs. */
import { createDockerBackend } from "../../environments/docker/index.ts";
import { BUSYBOX_IMAGE, WORKBENCH_IMAGE } from "../host/images.ts";
import { serveDocker } from "../serve/served-docker.ts";
import { AREAS, type Area } from "./index.ts";
import { describeVercel, SH_GAPS } from "./vercel.ts";

// Many processes that are asked about by commands, each of them several programs on this one machine, take minutes
// with bash; BusyBox starts them faster.
const WITHOUT_PROCESSES = (Object.keys(AREAS) as Area[]) // the keys of a constant object
  .filter((area) => area !== "processes");

for (const image of [BUSYBOX_IMAGE, WORKBENCH_IMAGE]) {
  const health = await createDockerBackend({ image, pull: "never" }).health();
  describeVercel({
    name: `vercel over docker ${image}`,
    serve: () => serveDocker(image),
    ...(!health.healthy && { unavailable: health.reason }),
    ...(image === WORKBENCH_IMAGE && { areas: WITHOUT_PROCESSES }),
    ...(image === BUSYBOX_IMAGE && {
      gaps: { ...SH_GAPS, "a child of nohup does not hold the call": "Debian's static BusyBox has no nohup" },
    }),
  });
}
