/**
 * Random changes in a workspace, with checkpoints and restores between, against a model in memory: every restore gives
 * exactly the moment that was checkpointed, and its undo exactly what was there before it.
 */
import { expect } from "vitest";
import type { BaseEnvironment } from "../../../environments/base.ts";
import { quote } from "../../../environments/shell/quote.ts";
import { createMoorage } from "../../../src/moorage.ts";
import { type Picture, pickerFrom, pictureOf, randomFrom } from "./picture.ts";

const NAMES = ["a", "b", "-c", "d e", "ü", "x\ny", ".h"] as const;
const TARGETS = ["a", "../b", "/nowhere/at/all", "nowhere"] as const;
const MODES = ["644", "600", "755", "4711"] as const;
const FOLDER_MODES = ["755", "700", "2775"] as const;

/** What cannot be done in the present tree is not done; nor what goes through a link, which could leave the workspace. */
const GUARDS = `links() { p=$1; while :; do [ ! -L "./$p" ] || return 0; case $p in */*) p=\${p%/*} ;; *) return 1 ;; esac; done; }
{`;

/** @param operations in all, checkpoints and restores among them */
export async function checkCheckpointModel(
  environment: BaseEnvironment,
  stateDir: string,
  { seed, operations }: { readonly seed: number; readonly operations: number },
): Promise<void> {
  const random = randomFrom(seed);
  const pick = pickerFrom(random);
  const somewhere = () => Array.from({ length: 1 + random(3) }, () => pick(NAMES)).join("/");
  const change = (): string => {
    const [path, other] = [somewhere(), somewhere()];
    const [at, to] = [quote(`./${path}`), quote(`./${other}`)];
    const free = `links ${quote(path)} ||`;
    const steps = [
      `${free} printf '%s' 'content ${random(1_000_000)}' >${at}`,
      `${free} printf '\\${(random(200) + 55).toString(8)}\\000\\377' >${at}`,
      `${free} mkdir -p -- ${at}`,
      `${free} [ -e ${at} ] || ln -s -- ${quote(pick(TARGETS))} ${at}`,
      `${free} links ${quote(other)} || mv -f -- ${at} ${to}`,
      `${path.includes("/") ? `links ${quote(path.slice(0, path.lastIndexOf("/")))} ||` : ""} rm -rf -- ${at}`,
      `${free} if [ -d ${at} ]; then chmod ${pick(FOLDER_MODES)} ${at}; else chmod ${pick(MODES)} ${at}; fi`,
    ];
    return pick(steps);
  };
  await using moorage = await createMoorage({ environments: { main: environment }, stateDir });
  const { checkpoints } = moorage;
  const look = () => pictureOf(environment);
  const moments: { readonly id: string; readonly was: Picture }[] = [];
  let waiting: string[] = [];
  for (let step = 0; step < operations; step += 1) {
    const kind = random(10);
    const title = `seed ${seed}, step ${step}`;
    if (kind < 6) {
      waiting.push(change());
      continue;
    }
    await environment.exec(`${[GUARDS, ...waiting].join("\n")}\n:; } 2>/dev/null`);
    waiting = [];
    if (kind < 8) moments.push({ was: await look(), id: (await checkpoints.create(environment)).id });
    else if (kind < 9) {
      const was = await look();
      const { ok, text } = await moorage.call({
        name: "write_file",
        arguments: { path: `w${random(5)}/${random(3)}`, content: String(step) },
      });
      const { checkpoint }: { checkpoint?: string } = JSON.parse(text);
      if (!ok || checkpoint === undefined) continue;
      // A checkpoint of files knows no more than them, until one of the tree follows.
      await checkpoints.restore(checkpoint, environment);
      expect(await look(), `${title}: the call alone is undone`).toEqual(was);
    } else if (moments.length > 0) {
      const { id, was } = pick(moments);
      const present = await look();
      const report = await checkpoints.restore(id, environment, { removeOthers: true });
      expect(report.failed, title).toEqual([]);
      expect(await look(), title).toEqual(was);
      const undone = await checkpoints.restore(String(report.undo), environment, { removeOthers: true });
      expect(undone.failed, `${title}: undo`).toEqual([]);
      expect(await look(), `${title}: undo`).toEqual(present);
    }
  }
  expect(moments.length, "checkpoints that could be restored").toBeGreaterThan(operations / 20);
  expect(moments.some(({ was }) => Object.keys(was).length > 5)).toBe(true);
}
