/** An image with BusyBox alone, and a user to whom permissions are refused. */
import { BUSYBOX_IMAGE } from "../host/images.ts";
import { describeDocker } from "./docker.ts";

describeDocker({ image: BUSYBOX_IMAGE, user: "1000:1000" });
