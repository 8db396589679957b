/** The argv form of a command: started as it is, by no shell. */
import { expect } from "vitest";
import { type Cases, expectRefused, inBash, result, scratch, token } from "./support.ts";

export const argv = {
  "argv words reach the program without splitting, globbing or expansion": async ({ environment }) => {
    const words = [
      "a b",
      "*",
      "$HOME",
      "`id`",
      "$(id)",
      "~",
      "",
      "'",
      '"',
      "\\",
      "\\n",
      "#x",
      ";",
      "&",
      "!",
      "{a,b}",
    ];
    expect(await environment.exec(["printf", "[%s]", ...words])).toEqual(
      result({ output: words.map((word) => `[${word}]`).join("") }),
    );
  },
  "argv words keep control characters and non-ASCII text": async ({ environment }) => {
    const control = Array.from({ length: 31 }, (_, index) => String.fromCharCode(index + 1)).join("");
    const words = [control, "\x7f", "é漢字😀", "\n", "end\n", "\u2028"];
    expect(await environment.exec(["printf", "[%s]", ...words])).toEqual(
      result({ output: words.map((word) => `[${word}]`).join("") }),
    );
  },
  "argv names of shell words are names of programs": async ({ environment }) => {
    expect(await environment.exec(["echo", "a", "b"])).toEqual(result({ output: "a b\n" }));
    expect(await environment.exec(["[", "1", "=", "1", "]"])).toEqual(result());
    expect(await environment.exec(["[", "1", "=", "2", "]"])).toEqual(result({ exitCode: 1 }));
    for (const word of ["exit", "if", "{", "!", "export", "A=1", "return"]) {
      expect(await environment.exec([word, "3"])).toMatchObject({ exitCode: 127 });
    }
  },
  "argv commands change nothing in their session": async ({ environment }) => {
    await using session = await environment.openSession();
    await session.exec(["cd", "/"]);
    await session.exec(["export", "A=1"]);
    expect(await session.exec('pwd; echo "${A-unset}"')).toEqual(
      result({ output: `${environment.workspace}\nunset\n` }),
    );
  },
  "argv commands get the session's folder and variables": async ({ environment }) => {
    await using session = await environment.openSession();
    await session.exec("cd /; export A='x y'");
    expect(await session.exec(["sh", "-c", 'pwd; echo "$A"'])).toEqual(
      result({ output: "/\nx y\n", cwd: "/" }),
    );
  },
  "argv commands ignore functions and aliases": inBash(async ({ environment }) => {
    await using session = await environment.openSession();
    await session.exec("ls() { echo fake; }; alias cat='echo fake'");
    expect(await session.exec(["ls", "-d", "/"])).toEqual(result({ output: "/\n" }));
    expect(await session.exec(["cat", "/dev/null"])).toEqual(result());
  }),
  "argv programs may have awkward names": async ({ environment }) => {
    const folder = await scratch(environment);
    for (const name of ["a b", "-n", "$x", "new\nline", "q'uote"]) {
      await environment.files.writeFile(`${folder}/${name}`, '#!/bin/sh\necho "ran $1"\n', { mode: 0o755 });
      expect(await environment.exec([`${folder}/${name}`, "it"])).toEqual(result({ output: "ran it\n" }));
      expect(await environment.exec([`./${name}`, "it"], { cwd: folder })).toMatchObject({
        output: "ran it\n",
      });
    }
  },
  "argv programs that are missing give 127 and their name": async ({ environment }) => {
    const missing = `/nowhere/${token()}`;
    expect(await environment.exec([missing, "x"])).toEqual(
      result({ exitCode: 127, output: expect.stringContaining(missing) }),
    );
  },
  "argv options are the program's own": async ({ environment }) => {
    expect(await environment.exec(["printf", "--", "%s", "-n"])).toMatchObject({ exitCode: 0 });
    expect(await environment.exec(["printf", "-n"]).then(({ timedOut }) => timedOut)).toBe(false);
  },
  "argv must name a program": async ({ environment }) => {
    await expectRefused(environment.exec([]));
    for (const name of ["", "-x"]) {
      await environment.exec([name]).then(
        ({ exitCode }) => expect(exitCode).toBe(127),
        (error: unknown) => expectRefused(Promise.reject(error)),
      );
    }
  },
  "argv of 200,000 bytes in words of 1,000 runs": async ({ environment }) => {
    const words = Array.from({ length: 200 }, () => "w".repeat(1_000));
    expect(await environment.exec(["sh", "-c", 'echo "$#"', "sh", ...words])).toEqual(
      result({ output: "200\n" }),
    );
  },
} satisfies Cases;
