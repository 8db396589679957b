import { connect, createServer, type Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { dial, inHostsFile, resolveWithSystem } from "../../../environments/egress/dial.ts";
import { parseHost } from "../../../environments/egress/host.ts";
import { compilePolicy } from "../../../environments/egress/policy.ts";
import { portOf } from "./network.ts";

describe("inHostsFile()", () => {
  const text =
    "127.0.0.1 localhost # loop\n10.0.0.5\tdb.internal DB\n::1 localhost ip6\n# 1.1.1.1 db.internal\nnonsense db.internal\n";

  it.each([
    ["localhost", ["127.0.0.1", "::1"]],
    ["db.internal", ["10.0.0.5"]],
    ["db", ["10.0.0.5"]],
    ["loop", []],
    ["internal", []],
  ])("has %s as %j", (name, addresses) => {
    expect(inHostsFile(text, name)).toEqual(addresses);
  });
});

describe("dial()", () => {
  const target = { host: parseHost("localhost"), port: 80 };
  const never = () => {
    throw new Error("must not be dialled");
  };

  it("refuses a name of this machine that leads to a forbidden address", async () => {
    const policy = compilePolicy({ allow: ["localhost"] });
    expect(await dial(() => policy, target, resolveWithSystem, never)).toMatchObject({
      outcome: "denied",
      verdict: { rule: "loopback address" },
    });
  });

  it("obeys the policy of the moment after a name was resolved", async () => {
    let policy = compilePolicy({ allow: ["localhost"] });
    const lookup = async () => {
      policy = compilePolicy({ allow: [] });
      return ["93.184.216.34"];
    };
    expect(await dial(() => policy, target, lookup, never)).toMatchObject({ outcome: "denied" });
  });

  it("obeys the policy of the moment after the connection was made", async () => {
    const server = createServer((socket) => socket.on("error", () => {}));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    try {
      let policy = compilePolicy({ allow: ["localhost"] });
      const sockets: Socket[] = [];
      const slow = () => {
        const socket = connect({ host: "127.0.0.1", port: portOf(server) });
        // Heard before the dialler hears of it.
        socket.once("connect", () => {
          policy = compilePolicy({ allow: [] });
        });
        sockets.push(socket);
        return socket;
      };
      const dialled = await dial(
        () => policy,
        target,
        async () => ["93.184.216.34"],
        slow,
      );
      expect(dialled).toMatchObject({ outcome: "denied", verdict: { allowed: false } });
      expect(sockets.map(({ destroyed }) => destroyed)).toEqual([true]);
    } finally {
      server.close();
    }
  });

  it("says why a name cannot be resolved", async () => {
    const policy = compilePolicy({ allow: ["localhost"] });
    const lookup = () => Promise.reject(new Error("no such name"));
    expect(await dial(() => policy, target, lookup, never)).toEqual({
      outcome: "unreachable",
      reason: "localhost cannot be resolved: no such name",
    });
  });
});
