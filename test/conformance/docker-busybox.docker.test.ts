/** An image with BusyBox alone, and a user to whom permissions are refused. */
import { BUSYBOX_IMAGE } from "../host/images.ts";
import { describeDocker } from "./docker.ts";

describeDocker(
  { image: BUSYBOX_IMAGE, user: "1000:1000" },
  {
    "writeFile() takes a mode for a new file and keeps that of an old one (FT-23)":
      "who is not root may not write to a file of mode 0400, one's own neither",
    "a child of nohup does not hold the call": "Debian's static BusyBox has no nohup",
  },
);
