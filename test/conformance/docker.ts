/** The suite in containers: a file for each image, so that they run side by side. */
import { inject } from "vitest";
import type { EgressPolicy } from "../../environments/base.ts";
import { createDockerEnvironment, listDocker } from "../../environments/docker/index.ts";
import { BUSYBOX_IMAGE, WORKBENCH_IMAGE } from "../host/images.ts";
import { type Conformance, describeEnvironment } from "./index.ts";
import { temporaryRoot } from "./root.ts";

const engine = inject("engine");
/** An image to ask, and what cannot be kept in it. */
export interface DockerPlace extends Pick<Conformance, "gaps" | "areas"> {
  readonly image: string;
  readonly user?: string;
  readonly egress?: EgressPolicy;
}

/** What an engine, its streams and its containers could touch. */

/** An image with bash and the usual programs. */
export const WORKBENCH: DockerPlace = { image: WORKBENCH_IMAGE };

/** An image with BusyBox alone, and a user to whom permissions are refused. */
export const BUSYBOX: DockerPlace = {
  image: BUSYBOX_IMAGE,
  user: "1000:1000",
  gaps: {
    "writeFile() takes a mode for a new file and keeps that of an old one (FT-23)":
      "who is not root may not write to a file of mode 0400, one's own neither",
    "a child of nohup does not hold the call": "Debian's static BusyBox has no nohup",
  },
};

/** Registers the suite, or a part of it, for one image, or its reason when there is no engine. */
export function describeDocker({ gaps, areas, ...options }: DockerPlace): void {
  const stateDir = temporaryRoot();
  describeEnvironment({
    name: `docker ${options.image}`,
    ...(gaps && { gaps }),
    ...(areas && { areas }),
    create: () => createDockerEnvironment({ ...options, stateDir }),
    ...(!engine.available && { unavailable: engine.reason }),
    facts: {
      leftovers: async ({ id }) => {
        const entries = await listDocker();
        return entries.filter(({ environment }) => environment === id).map((entry) => JSON.stringify(entry));
      },
    },
  });
}
