/** `moor images`: build and list the images that come with this program. */
import { EXIT } from "./exit.ts";
import { watchLifetime } from "./lifetime.ts";
import type { JsonOption } from "./options.ts";
import { printJson, printLine, printText } from "./output.ts";

export async function buildAll(names: readonly string[], { json }: JsonOption): Promise<number> {
  const { buildImages } = await import("../../images/build.ts");
  using lifetime = watchLifetime();
  try {
    const images = await buildImages({
      ...(names.length === 0 ? {} : { names }),
      onProgress: (message) => printLine(`moor: ${message}`),
      abortSignal: lifetime.abortSignal,
    });
    print(images, json);
    return lifetime.exitCode ?? EXIT.ok;
  } catch (error) {
    if (lifetime.exitCode !== null) return lifetime.exitCode;
    throw error;
  }
}

export async function list({ json }: JsonOption): Promise<number> {
  const { listImages } = await import("../../images/build.ts");
  print(await listImages(), json);
  return EXIT.ok;
}

interface ImageLine {
  readonly tag: string;
  readonly purpose: string;
  readonly id: string | null;
  readonly current: boolean;
}

function print(images: readonly ImageLine[], json: boolean | undefined): void {
  if (json) {
    printJson({ images });
    return;
  }
  for (const { tag, purpose, id, current } of images) {
    const state = id === null ? "not built" : current ? "built" : "built from older sources";
    printText(`${tag.padEnd(28)} ${state.padEnd(26)} ${purpose}`);
  }
}
