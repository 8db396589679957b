/** A served API over containers. */
import { createDockerEnvironment } from "../../environments/docker/index.ts";
import { type Served, serve } from "./served.ts";

/** Serves containers of `image`, behind the policies that are asked for, until it is disposed. */
export function serveDocker(image: string): Promise<Served> {
  return serve(({ root, places }) => async ({ egress }) => {
    const environment = createDockerEnvironment({ image, egress, stateDir: root });
    places.add(environment.id);
    return {
      environment,
      remove: async () => {
        places.delete(environment.id);
      },
    };
  });
}
