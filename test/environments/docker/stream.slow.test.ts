import { expect, it } from "vitest";
import { DockerClient } from "../../../environments/docker/client.ts";
import { openExec } from "../../../environments/docker/stream.ts";
import { FakeDaemon } from "./fake-daemon.ts";
import { fakeTarget, until } from "./read-stream.ts";

it("openExec() leaves no connection behind after 2,000 streams", async () => {
  await using daemon = await FakeDaemon.listen();
  daemon.onExec = ({ socket }) => {
    socket.on("end", () => socket.end()).resume();
  };
  const target = await fakeTarget(new DockerClient(() => daemon.endpoint));
  let most = 0;
  for (let index = 0; index < 2_000; index += 1) {
    const stream = await openExec(target, { argv: ["sh"], env: {} });
    most = Math.max(most, daemon.connections.size);
    await stream.close();
  }
  expect(most).toBeLessThan(20);
  await until(() => daemon.connections.size === 1); // the watch's own
  target.watch.close();
  await until(() => daemon.connections.size === 0);
});
