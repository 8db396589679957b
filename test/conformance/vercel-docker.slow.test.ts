/** Sandboxes that are containers: every area, with BusyBox alone and with bash and the usual programs. */
import { createDockerBackend } from "../../environments/docker/index.ts";
import { BUSYBOX_IMAGE, WORKBENCH_IMAGE } from "../host/images.ts";
import { serveDocker } from "../serve/served-docker.ts";
import { describeVercel, SH_GAPS } from "./vercel.ts";

for (const image of [BUSYBOX_IMAGE, WORKBENCH_IMAGE]) {
  const health = await createDockerBackend({ image, pull: "never" }).health();
  describeVercel({
    name: `vercel over docker ${image}`,
    serve: () => serveDocker(image),
    ...(!health.healthy && { unavailable: health.reason }),
    ...(image === BUSYBOX_IMAGE && {
      gaps: { ...SH_GAPS, "a child of nohup does not hold the call": "Debian's static BusyBox has no nohup" },
    }),
  });
}
