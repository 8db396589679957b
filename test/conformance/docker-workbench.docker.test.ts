/** An image with bash and the usual programs. */
import { WORKBENCH_IMAGE } from "../host/images.ts";
import { describeDocker } from "./docker.ts";

describeDocker({ image: WORKBENCH_IMAGE });
