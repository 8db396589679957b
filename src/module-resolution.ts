/**
 * Lets tool modules in folders of the user import `moorage` and `zod` though nothing is installed beside them:
 * dropping a file into the folder is all it takes.
 */
import { realpathSync } from "node:fs";
import { registerHooks } from "node:module";
import { resolve, sep } from "node:path";
import { pathToFileURL } from "node:url";

/**
 * From now on, modules in `folders` get `moorage` from here, so that a tool registers in the very registry that is
 * used, and `zod` from beside them if it is there, else from here. Other modules are not touched.
 *
 * @returns a function that ends it
 */
export function serveOwnModules(folders: readonly string[]): () => void {
  const own = new Map([
    // The sources run unbuilt and the package is built, so the extension is whatever this file has.
    ["moorage", new URL(`./index${import.meta.url.endsWith(".ts") ? ".ts" : ".js"}`, import.meta.url).href],
    ["zod", import.meta.resolve("zod")],
  ]);
  const roots = folders
    .flatMap((folder) => [resolve(folder), realPath(folder)])
    .map((path) => pathToFileURL(path + sep).href);
  const hooks = registerHooks({
    resolve: (specifier, context, next) => {
      const url = own.get(specifier);
      const isTool = roots.some((root) => context.parentURL?.startsWith(root));
      if (url === undefined || !isTool) return next(specifier, context);
      if (specifier === "moorage") return { url, shortCircuit: true };
      try {
        return next(specifier, context);
      } catch (error) {
        const isMissing = error instanceof Error && "code" in error && error.code === "ERR_MODULE_NOT_FOUND";
        if (isMissing) return { url, shortCircuit: true };
        throw error;
      }
    },
  });
  return () => hooks.deregister();
}

/** With links resolved, as modules know their own place; a missing folder stays as it is, discovery reports it. */
function realPath(folder: string): string {
  try {
    return realpathSync(folder);
  } catch {
    return resolve(folder);
  }
}
