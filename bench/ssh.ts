/** A machine over SSH: a small command against `ssh` with a shared connection, large data against `scp`. */
import { execFile } from "node:child_process";
import { mkdir, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { makePlace, type Place } from "../test/environments/ssh/places.ts";
import { sshdObstacle } from "../test/environments/ssh/sshd.ts";
import { expectEqual } from "./environments.ts";
import { type Figure, type Measured, paired } from "./measure.ts";

const MIB = 1024 * 1024;
const ECHO_RUNS = 240;
const COPY_RUNS = 15;

/** As Debian configures it, as far as a comparison can feel it. */
const SERVER = { config: ["UsePAM yes", "Subsystem sftp internal-sftp"] };

const obstacle = async () => sshdObstacle("/usr/bin/ssh", "/usr/bin/scp");

export const figures: readonly Figure[] = [
  { name: "ssh-echo-vs-control-master", goal: 0.1, unit: "ms", obstacle, measure: echo },
  { name: "ssh-100-mib-up-vs-scp", goal: 1, unit: "ms", obstacle, measure: () => copy("up") },
  { name: "ssh-100-mib-down-vs-scp", goal: 1, unit: "ms", obstacle, measure: () => copy("down") },
];

/** Options by which the programs reach the place as we do. */
function programOptions(place: Place): string[] {
  const options = [
    "-F",
    "/dev/null",
    "-i",
    place.key,
    "-o",
    `UserKnownHostsFile=${place.knownHosts}`,
    "-o",
    "BatchMode=yes",
  ];
  return [
    ...options,
    "-o",
    "ControlMaster=auto",
    "-o",
    "ControlPersist=60",
    "-o",
    `ControlPath=${join(place.folder, "%C")}`,
  ];
}

async function run(program: string, ...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(program, args);
  return stdout;
}

async function withMaster<Result>(place: Place, use: (target: string) => Promise<Result>): Promise<Result> {
  const target = `${place.account.name}@127.0.0.1`;
  const options = [...programOptions(place), "-p", String(place.sshd.port)];
  await run("ssh", ...options, target, "true");
  try {
    return await use(target);
  } finally {
    await run("ssh", ...options, "-O", "exit", target);
  }
}

async function echo(): Promise<Measured> {
  await using place = await makePlace(SERVER);
  await using environment = place.make();
  await using session = await environment.openSession();
  return await withMaster(place, (target) =>
    paired(
      { run: async () => expectEqual((await session.exec("echo hi")).output, "hi\n") },
      {
        run: async () => {
          const options = [...programOptions(place), "-p", String(place.sshd.port)];
          expectEqual(await run("ssh", ...options, target, "echo hi"), "hi\n");
        },
      },
      ECHO_RUNS,
    ),
  );
}

/** Both sides have a connection already. */
async function copy(direction: "up" | "down"): Promise<Measured> {
  await using place = await makePlace(SERVER);
  await using environment = place.make();
  await environment.start();
  const half = Buffer.alloc(50 * MIB, "0123456789abcdef");
  const local = join(place.folder, "local");
  await writeFile(local, Buffer.concat([half, half]));
  const back = join(place.folder, "back");
  await mkdir(back);
  if (direction === "down") {
    await environment.exec("cat >ours; cat ours >theirs", { stdin: half });
    await environment.exec("cat >>ours; cat ours >theirs", { stdin: half });
  }
  const ours = async () => {
    if (direction === "up") {
      await environment.exec("cat >ours", { stdin: half });
      await environment.exec("cat >>ours", { stdin: half });
      return;
    }
    let bytes = 0;
    await environment.exec("cat ours", {
      captureBytes: 1_024,
      onOutput: ({ data }) => {
        bytes += data.byteLength;
      },
    });
    expectEqual(bytes, 100 * MIB);
  };
  return await withMaster(place, (target) => {
    const options = [...programOptions(place), "-q", "-P", String(place.sshd.port)];
    const theirs = async () => {
      if (direction === "up") await run("scp", ...options, local, `${target}:theirs`);
      else await run("scp", ...options, `${target}:theirs`, join(back, "theirs"));
    };
    const check = async () => {
      if (direction === "up") expectEqual((await environment.exec("wc -c <ours")).output, `${100 * MIB}\n`);
      else expectEqual((await stat(join(back, "theirs"))).size, 100 * MIB);
    };
    return paired(
      { run: ours, ...(direction === "up" && { after: check }) },
      {
        run: theirs,
        after: async () => (direction === "down" ? check().then(() => rm(join(back, "theirs"))) : undefined),
      },
      COPY_RUNS,
      1,
    );
  });
}
