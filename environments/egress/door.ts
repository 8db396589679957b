/**
 * The door of a place without a network: a forwarder between a port of its loopback and the proxy's unix socket. It
 * decides nothing. A script for `node -e`, since it runs where none of our files are.
 */

/** Where commands find the proxy. */
export const DOOR_PORT = 3128;

/** Arguments: port, socket path, and a program that is started when the door is open and whose end is the door's. */
export const DOOR_SCRIPT = `
const net = require("node:net"), { spawn } = require("node:child_process"), { constants } = require("node:os");
const [port, path, file, ...args] = process.argv.slice(1);
const open = new Set();
const server = net.createServer({ allowHalfOpen: true, noDelay: true }, (inside) => {
  if (open.size >= 1024) return void inside.destroy();
  const outside = net.connect({ path, allowHalfOpen: true });
  open.add(inside);
  const end = () => { open.delete(inside); inside.destroy(); outside.destroy(); };
  for (const [from, to] of [[inside, outside], [outside, inside]]) {
    from.on("error", end);
    from.once("close", () => { if (from.readableEnded && from.writableFinished) open.delete(inside); else end(); });
    from.pipe(to);
  }
});
server.on("error", (error) => { console.error("door: " + error.message); process.exit(70); });
server.listen({ port: Number(port), host: "127.0.0.1" }, () => {
  if (!file) return void console.log("open");
  const child = spawn(file, args, { stdio: [0, 1, 2, 3, 4, 5] });
  child.once("error", (error) => { console.error("door: " + error.message); process.exit(71); });
  child.once("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : code));
});
`;

/** What tells programs where the door is; that they cannot go elsewhere does not depend on it. */
export function doorVariables(): Record<string, string> {
  const url = `http://127.0.0.1:${DOOR_PORT}`;
  const near = "localhost,127.0.0.1,::1";
  return {
    HTTP_PROXY: url,
    HTTPS_PROXY: url,
    http_proxy: url,
    https_proxy: url,
    NO_PROXY: near,
    no_proxy: near,
    NODE_USE_ENV_PROXY: "1",
  };
}
