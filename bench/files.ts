/** A small file read and written in a container, against a small command in a session of it. */
import { dockerEnvironment, dockerObstacle, expectEqual, temporaryFolder } from "./environments.ts";
import { type Figure, type Measured, paired } from "./measure.ts";

const RUNS = 60;
const GOAL = 1.5;
const CONTENT = Buffer.from("0123456789abcde\n".repeat(256));

export const figures: readonly Figure[] = [
  {
    name: "docker-read-4k-vs-echo",
    goal: GOAL,
    unit: "ms",
    obstacle: dockerObstacle,
    measure: () =>
      fileAgainstEcho(async ({ files }) => {
        const { bytes } = await files.readLines("four-kib");
        expectEqual(bytes.length, CONTENT.length);
      }),
  },
  {
    name: "docker-write-4k-vs-echo",
    goal: GOAL,
    unit: "ms",
    obstacle: dockerObstacle,
    measure: () =>
      fileAgainstEcho(async ({ files }) => {
        const { bytesWritten } = await files.writeFile("four-kib", CONTENT);
        expectEqual(bytesWritten, CONTENT.length);
      }),
  },
];

type Environment = ReturnType<typeof dockerEnvironment>;

async function fileAgainstEcho(use: (environment: Environment) => Promise<void>): Promise<Measured> {
  await using folder = await temporaryFolder();
  await using environment = dockerEnvironment(folder.path);
  await using session = await environment.openSession();
  await environment.files.writeFile("four-kib", CONTENT);
  return await paired(
    { run: () => use(environment) },
    { run: async () => expectEqual((await session.exec("echo hi")).output, "hi\n") },
    RUNS,
  );
}
