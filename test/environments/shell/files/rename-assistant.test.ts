import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import {
  RENAME_ASSISTANT,
  RENAME_ASSISTANT_END,
} from "../../../../environments/shell/files/rename-assistant.ts";

it("__moor_replace takes no answer that another asked for and did not read", () => {
  const folder = mkdtempSync(join(tmpdir(), "moorage-assistant-"));
  try {
    writeFileSync(join(folder, "a"), "a");
    writeFileSync(join(folder, "c"), "c");
    const script = `
${RENAME_ASSISTANT}
( printf '%s\\0' 1 "$1" a b >&6 )
( __moor_replace "$1" missing d; echo "missing $?"; __moor_replace "$1" c d; echo "there $?" )
${RENAME_ASSISTANT_END}`;
    const said = execFileSync("bash", ["-c", script, "bash", folder], { encoding: "utf8" });
    expect(said).toBe("missing 1\nthere 0\n");
    expect([readFileSync(join(folder, "b"), "utf8"), readFileSync(join(folder, "d"), "utf8")]).toEqual([
      "a",
      "c",
    ]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
