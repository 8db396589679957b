/**
 * `npm run demo`: an agent's recorded tool calls repair a small library, on this machine and in a container.
 *
 * Each place gets a copy of `sample/`; the calls of `calls.json` run through the whole pipeline, as a model's would.
 * Nothing is installed and nothing is pulled. Exits with 0 only when the tests failed first and passed at the end.
 */
import { cp, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type CallResult, createMoorage, fromOpenAi, type OpenAiToolCall } from "moorage";
import { openEngine } from "../../environments/docker/index.ts";
import { changesBetween } from "./changes.ts";
import { type Screen, terminalScreen } from "./screen.ts";

const SAMPLE = join(import.meta.dirname, "sample");
/** Images that bring Node, in order of preference. Only one that the engine has already is used. */
const IMAGES = ["moorage/workbench:latest", "node:24", "node:24-slim", "node:22", "node:22-slim"];

async function play(place: string, environment: string, screen: Screen): Promise<boolean> {
  const folder = await mkdtemp(join(tmpdir(), "moorage-demo-"));
  try {
    const workspace = join(folder, "sample");
    await cp(SAMPLE, workspace, { recursive: true });
    screen.title(`${place}: ${environment}`);
    await using moorage = await createMoorage({
      environments: environment,
      workspace,
      stateDir: join(folder, "state"),
      onEvent: (event) => {
        if (event.type === "environment-progress") screen.note(event.message);
      },
    });
    // The recorded file has the shape of a chat model's answer.
    const calls = JSON.parse(
      await readFile(join(import.meta.dirname, "calls.json"), "utf8"),
    ) as OpenAiToolCall[];
    const results: CallResult[] = [];
    for (const [index, recorded] of calls.entries()) {
      const call = fromOpenAi(recorded);
      const result = await moorage.call(call);
      screen.call(index + 1, call, result);
      results.push(result);
    }
    screen.diff(await changesBetween(SAMPLE, workspace));
    return screen.verdict(place, judge(results));
  } catch (error) {
    return screen.verdict(place, error instanceof Error ? error.message : String(error));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Why the repair counts as failed, or null when it is a success. */
function judge(results: readonly CallResult[]): string | null {
  for (const result of results) {
    if (!result.ok) return `${result.tool} failed: ${result.error.code}: ${result.error.message}`;
  }
  const exitCodes = results.flatMap((result) =>
    result.ok && result.tool === "terminal" ? [result.content.exit_code] : [],
  );
  const [first, last] = [exitCodes.at(0), exitCodes.at(-1)];
  if (exitCodes.length < 2 || first === 0) return "the tests did not fail before the patch";
  if (last !== 0) return `the tests fail after the patch too (exit code ${last})`;
  return null;
}

/** An image with Node that the engine has, or why the container part is left out. */
async function findImage(): Promise<{ readonly image: string } | { readonly reason: string }> {
  let tags: readonly string[];
  try {
    const { docker } = await openEngine();
    tags = (await docker.listImages()).flatMap(({ RepoTags }) => RepoTags ?? []);
  } catch (error) {
    return { reason: `no Docker engine answers (${error instanceof Error ? error.message : error})` };
  }
  const image = IMAGES.find((one) => tags.includes(one) || tags.includes(`${one}:latest`));
  if (image) return { image };
  return { reason: `the engine has no image with Node; \`npm run host\` builds ${IMAGES[0]}` };
}

const screen = terminalScreen(process.stdout);
screen.intro("The same recorded calls of an agent, played in each place on a copy of examples/demo/sample.");
let green = await play("On this machine", "local", screen);
const found = await findImage();
if ("image" in found) green = (await play("In a container", `docker:${found.image}`, screen)) && green;
else screen.leftOut("In a container", found.reason);
process.exitCode = green ? 0 : 1;
