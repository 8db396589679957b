/**
 * The door of a place without a network: a port of its loopback behind which the proxy is. It decides nothing. Its
 * scripts are for `node -e`, since they run where none of our files are.
 */

/** Where commands find the proxy. */
export const DOOR_PORT = 3128;
/** Name of the proxy's unix socket in its folder. */
export const DOOR_SOCKET = "door";
/** How that folder's name begins. */
export const GATE_FOLDER = "moorage-egress-";

/** Passes bytes between the port and a unix socket. Arguments: port, socket path. Says `open` when it is. */
export const FORWARDING_DOOR = `
const net = require("node:net");
const [port, path] = process.argv.slice(1);
const open = new Set();
const server = net.createServer({ allowHalfOpen: true, noDelay: true }, (inside) => {
  if (open.size >= 1024) return void inside.destroy();
  // Buffers that go round: one for every read costs more than the read.
  const free = [];
  let waiting = 0;
  const outside = net.connect({ path, allowHalfOpen: true, onread: {
    buffer: () => free.pop() ?? Buffer.allocUnsafeSlow(131072),
    callback: (bytes, buffer) => {
      waiting += 1;
      inside.write(buffer.subarray(0, bytes), () => {
        free.push(buffer);
        waiting -= 1;
        if (waiting < 2 && !outside.destroyed) outside.resume();
      });
      return waiting < 2;
    },
  } });
  outside.once("end", () => inside.end()).resume();
  inside.pipe(outside);
  open.add(inside);
  const end = () => { open.delete(inside); inside.destroy(); outside.destroy(); };
  for (const from of [inside, outside]) {
    from.on("error", end);
    from.once("close", () => { if (from.readableEnded && from.writableFinished) open.delete(inside); else end(); });
  }
});
server.on("error", (error) => { console.error("door: " + error.message); process.exit(70); });
server.listen({ port: Number(port), host: "127.0.0.1" }, () => console.log("open"));
`;

/**
 * Opens the port, hands the listener to its parent over their channel, so that no byte passes through it, and ends.
 * Argument: port.
 */
export const HANDING_DOOR = `
const net = require("node:net");
const fail = (error) => { console.error("door: " + error.message); process.exit(70); };
const server = net.createServer().on("error", fail);
server.listen({ port: Number(process.argv[1]), host: "127.0.0.1" }, () => {
  process.send("open", server, (error) => {
    if (error) return fail(error);
    // From here on only the parent takes connections.
    server.close();
    process.disconnect();
  });
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
