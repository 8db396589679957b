/**
 * The library in one file: tools for a model, its calls, and the environment beneath them.
 *
 *   node examples/library.ts docker:node:24
 */
import { createMoorage } from "moorage";

await using moorage = await createMoorage({ environments: process.argv[2] ?? "local", workspace: "." });

const tools = await moorage.tools("openai"); // for the request to the model
console.log(tools.map((tool) => tool.function.name).join(" "));

const result = await moorage.call({ name: "terminal", arguments: { command: "mkdir -p out && cd out" } });
console.log(result.text); // for the model: JSON, within its budget

const again = await moorage.call({ name: "terminal", arguments: { command: "basename $PWD" } });
if (again.ok) console.log(again.content.output);

const environment = moorage.environment(); // beneath the tools
await using session = await environment.openSession();
await session.exec("cd out && export CI=1");
const { exitCode, output, cwd } = await session.exec("echo CI is $CI", { timeoutMs: 60_000 });
await environment.files.writeFile("out/notes.txt", "byte-exact, atomic\n");
console.log(exitCode, output, cwd.endsWith("/out"));
