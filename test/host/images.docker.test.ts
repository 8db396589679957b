import { expect, it } from "vitest";
import { endpointOf, openEngine } from "../../environments/docker/index.ts";
import { buildImages, listImages } from "../../images/build.ts";
import { BUSYBOX_IMAGE, describeWithEngine, SSHD_IMAGE, WORKBENCH_IMAGE } from "./images.ts";

describeWithEngine("images", () => {
  it("buildImages() does nothing for images that are current", { tags: ["slow"] }, async () => {
    const before = await listImages();
    const said: string[] = [];
    const names = before.map(({ name }) => name);
    expect(await buildImages({ names, onProgress: (line) => said.push(line) })).toEqual(before);
    expect(said).toEqual([]);
    expect(before.map(({ tag, current }) => ({ tag, current }))).toEqual([
      { tag: BUSYBOX_IMAGE, current: true },
      { tag: WORKBENCH_IMAGE, current: true },
      { tag: SSHD_IMAGE, current: true },
    ]);
  });

  it("buildImages() without names leaves out what is for the tests alone", async () => {
    const tags = (await buildImages()).map(({ tag }) => tag);
    expect(tags).toEqual([BUSYBOX_IMAGE, WORKBENCH_IMAGE]);
  });

  it("buildImages() refuses a name that it does not know, before it builds anything", async () => {
    const said: string[] = [];
    await expect(
      buildImages({ names: ["busybox", "workbnech"], force: true, onProgress: (line) => said.push(line) }),
    ).rejects.toMatchObject({
      code: "INVALID_ARGUMENTS",
      message:
        'Cannot build image "workbnech"; did you mean "workbench"? (there are: busybox, workbench, sshd)',
    });
    expect(said).toEqual([]);
  });

  it("an engine that does not answer is DOCKER_UNREACHABLE", async () => {
    const engine = await openEngine(endpointOf("unix:///nonexistent/docker.sock", "a test"));
    await expect(listImages({ engine })).rejects.toMatchObject({ code: "DOCKER_UNREACHABLE" });
  });

  it("the workbench has a Node that runs TypeScript, and a workspace that git accepts", async () => {
    expect(
      await inContainer(WORKBENCH_IMAGE, ["node", "-e", "const n: number = 42; console.log(`n=${n}`)"]),
    ).toBe("n=42\n");
    expect(
      await inContainer(WORKBENCH_IMAGE, ["sh", "-c", "cd /workspace && git init -q . && echo ok"]),
    ).toBe("ok\n");
  });

  it("the BusyBox image has no bash and no GNU tool", async () => {
    expect(
      await inContainer(BUSYBOX_IMAGE, ["sh", "-c", "command -v bash || ls --version 2>&1 | head -n 1"]),
    ).toContain("unrecognized option");
  });
});

async function inContainer(image: string, command: string[]): Promise<string> {
  const { docker } = await openEngine();
  const container = await docker.createContainer({
    Image: image,
    Cmd: command,
    Tty: true,
    NetworkDisabled: true,
  });
  try {
    await container.start();
    await container.wait();
    return (await container.logs({ stdout: true, stderr: true })).toString("utf8").replaceAll("\r\n", "\n");
  } finally {
    await container.remove({ force: true });
  }
}
