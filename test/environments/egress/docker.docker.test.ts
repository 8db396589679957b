/** Egress of real containers: a hostile client inside, real listeners outside. */
import { mkdtemp, rm } from "node:fs/promises";
import { createServer as createHttpServer } from "node:http";
import { createServer } from "node:net";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, expect, it } from "vitest";
import type { BaseEnvironment, EgressPolicy } from "../../../environments/base.ts";
import { createDockerEnvironment, listDocker, openEngine } from "../../../environments/docker/index.ts";
import { BUSYBOX_IMAGE, describeWithEngine, WORKBENCH_IMAGE } from "../../host/images.ts";
import { pidsOf, uniqueSleep } from "../../surfaces/processes.ts";
import { portOf } from "./network.ts";

const stateDir = await mkdtemp(join(tmpdir(), "moorage-egress-"));
afterAll(() => rm(stateDir, { recursive: true, force: true }));

const started: BaseEnvironment[] = [];
afterEach(async () => {
  for (const environment of started.splice(0)) await environment.stop();
});

function make(egress: EgressPolicy, image = WORKBENCH_IMAGE, more: { keep?: boolean; id?: string } = {}) {
  const environment = createDockerEnvironment({ image, egress, stateDir, ...more });
  started.push(environment);
  const run = async (command: string) =>
    (await environment.exec(command, { timeoutMs: 60_000 })).output.trim();
  return { environment, run };
}

/** Containers that carry an environment's label, doors included. */
async function containersOf(id: string) {
  const filters = { label: [`moorage.environment=${id}`] };
  return await (await openEngine()).docker.listContainers({ all: true, filters });
}

describeWithEngine("egress of a container", () => {
  it("EG-02, EG-17, EG-18: with none or an allow-list there is a loopback and nothing else", async () => {
    let reached = 0;
    const listener = createServer((socket) => {
      reached += 1;
      socket.destroy();
    });
    await new Promise<void>((resolve) => listener.listen(0, "0.0.0.0", resolve));
    const hosts = Object.values(networkInterfaces()).flatMap((list) =>
      (list ?? []).filter(({ family }) => family === "IPv4").map(({ address }) => address),
    );
    try {
      for (const egress of ["none", { allow: ["allowed.test"] }] as const) {
        const { run } = make(egress);
        const port = portOf(listener);
        const targets = [...hosts, "host.docker.internal", "172.17.0.1", "192.0.2.1", "169.254.169.254"].map(
          (host) => `("${host}", ${port})`,
        );
        const script = `
import socket
def attempt(family, kind, address):
    try:
        s = socket.socket(family, kind); s.settimeout(5); s.connect(address); s.send(b"x"); print("reached", address)
    except OSError: print("closed")
for address in [${targets.join(", ")}]:
    attempt(socket.AF_INET, socket.SOCK_STREAM, address)
attempt(socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.53", 53))
attempt(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.11", 53))
attempt(socket.AF_INET6, socket.SOCK_STREAM, ("2001:db8::1", 80))
for name in ["random-name.test", "allowed.test", "${"a".repeat(40)}.attacker.test"]:
    try: socket.getaddrinfo(name, 80); print("resolved")
    except OSError: print("closed")
`;
        // To the loopback's resolver a datagram can be sent, and nobody is there to take it.
        const answers = (await run(`python3 -c '${script}'`))
          .split("\n")
          .filter((line) => !line.includes("127.0.0.11"));
        expect(new Set(answers)).toEqual(new Set(["closed"]));
        expect(
          await run(
            "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; tail -n +2 /proc/net/route; ls /var/run/docker.sock /run/docker.sock 2>&1 | grep -vc 'No such'",
          ),
        ).toBe("lo\n0");
      }
      expect(reached).toBe(0);
    } finally {
      listener.close();
    }
  });

  it("security 13: with a policy there are no sockets that know no network namespace, for 32-bit calls neither", async () => {
    const { environment, run } = make("none");
    // vsock leads to the machine that this one is a guest of. 32-bit calls need no 32-bit program on x86.
    const script = `
import ctypes, os, socket, struct
for family in range(64):
    if family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK): continue
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        try: socket.socket(family, kind); print("made", family, kind)
        except OSError: pass
libc = ctypes.CDLL(None, use_errno=True)
if libc.syscall(425, 1, 0) >= 0 or ctypes.get_errno() != 38: print("io_uring")
if os.uname().machine == "x86_64":
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p] + [ctypes.c_long] * 5
    page = libc.mmap(None, 4096, 7, 0x22 | 0x40, -1, 0)
    code = bytes([0x53, 0x89, 0xf8, 0x89, 0xf3, 0x89, 0xd1, 0xcd, 0x80, 0x5b, 0xc3])
    ctypes.memmove(page, code, len(code))
    ctypes.memmove(page + 512, struct.pack("<3I", 40, 1, 0), 12)
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int)(page)
    # socketcall(SOCK_SOCKET, ...), and socket(...) itself
    if call(102, 1, page + 512) >= 0 or call(359, 40, 1) >= 0: print("made by 32-bit calls")
print("done")
`;
    expect(await run(`python3 -c '${script}'`)).toBe("done");
    expect(environment.info().warnings).toBeUndefined();
    // Programs have what the engine's own filter leaves them.
    const work = `node -e 'new (require("worker_threads").Worker)("1", { eval: true })' && python3 -c 'import multiprocessing; print(multiprocessing.Pool(2).map(abs, [-1]))' && git init -q /tmp/r && su nobody -s /bin/sh -c 'id -u'`;
    expect(await run(work)).toBe("[1]\n65534");
  });

  it("EG-03, EG-04, EG-19: an allow-list's door leads to what is allowed, tells what is not, and localhost stays the container's", async () => {
    const server = createHttpServer((request, response) => response.end(`hello ${request.headers.host}`));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const allowed = `127.0.0.1:${portOf(server)}`;
    try {
      const { environment, run } = make({ allow: [allowed] });
      expect(await run(`curl -sS --noproxy '' http://${allowed}/`)).toBe(`hello ${allowed}`);
      const denied = await environment.exec(
        "curl -sS http://denied.test/?q=x; curl -sS https://denied.test/",
      );
      expect(denied.output).toMatch(/EGRESS_DENIED[\s\S]*response 403/);
      expect(denied.notes).toEqual([
        expect.stringMatching(/^Blocked by policy: "denied.test:80".*Do not retry.*rule "denied.test"$/),
        expect.stringMatching(/^Blocked by policy: "denied.test:443"/),
      ]);
      const git = await environment.exec("GIT_TERMINAL_PROMPT=0 git ls-remote https://denied.test/x.git");
      expect([git.exitCode, git.output]).toEqual([128, expect.stringMatching(/403/)]);
      expect(
        await run(
          `node -e 'fetch("https://denied.test/").catch((e) => console.log(e.cause.message, e.cause.cause?.message))'`,
        ),
      ).toMatch(/403/);
      expect(
        await run(
          "cd /tmp; echo own > own; (python3 -m http.server 8000 >/dev/null 2>&1 &) ; for i in $(seq 100); do curl -sf http://localhost:8000/own && break; sleep 0.1; done; curl -s http://127.0.0.1:8000/own",
        ),
      ).toBe("own\nown");
      // The door does not lead to the proxy of another container, nor is its process or socket here.
      expect(
        await run("ls / | grep -c moorage-door; grep -lsa '[n]et.createServer' /proc/[0-9]*/cmdline | wc -l"),
      ).toBe("0\n0");
    } finally {
      server.close();
    }
  });

  it("works in an image with nothing but BusyBox", async () => {
    const { run } = make({ allow: ["allowed.test"] }, BUSYBOX_IMAGE);
    expect(await run("http_proxy=$http_proxy wget -q -O - http://denied.test/ 2>&1")).toMatch(/403/);
  });

  it("has a door that runs nothing of the image's, whatever its variables and its loader's files name", async () => {
    const { docker } = await openEngine();
    const name = `moorage/test-${crypto.randomUUID().slice(0, 8)}`;
    const script = "mkdir -p /etc; echo /missing.so >/etc/ld.so.preload; echo 'throw 1' >/evil.js";
    const base = await docker.createContainer({ Image: BUSYBOX_IMAGE, Cmd: ["sh", "-c", script] });
    try {
      await base.start();
      await base.wait();
      const variables = ["NODE_OPTIONS=--require=/evil.js", "LD_PRELOAD=/missing.so", "LD_LIBRARY_PATH=/x"];
      await base.commit({ repo: name, changes: variables.map((text) => `ENV ${text}`).join("\n") });
      const { environment, run } = make({ allow: ["allowed.test"] }, name);
      expect(await run("http_proxy=$http_proxy wget -q -O - http://denied.test/ 2>&1")).toMatch(/403/);
      const door = (await containersOf(environment.id)).find(
        ({ Labels }) => Labels["moorage.role"] === "door",
      );
      const log = await docker.getContainer(door?.Id ?? "").logs({ stdout: true, stderr: true });
      expect(log.toString("latin1").replace(/[^\x20-\x7e\n]/g, "")).toBe("open\n");
      await environment.stop();
    } finally {
      await base.remove({ force: true });
      await docker
        .getImage(name)
        .remove({ force: true })
        .catch(() => {}); // it may never have been made
    }
  });

  it("EG-20: a door that is gone means no network, is opened again, and the environment's end leaves nothing", async () => {
    const { environment, run } = make({ allow: ["allowed.test"] });
    await environment.start();
    const own = await containersOf(environment.id);
    expect(own.length).toBe(2);
    // People see one environment.
    const listed = (await listDocker()).filter((entry) => entry.environment === environment.id);
    expect(listed.map(({ isDoor }) => isDoor)).toEqual([false]);
    const ask = "curl -sS --max-time 20 http://denied.test/ 2>&1";
    for (const end of ["remove", "kill"] as const) {
      const watching = environment.exec(
        `touch /tmp/${end}; while ${ask} | grep -q EGRESS_DENIED; do :; done
${ask}; curl -sS --noproxy '*' --max-time 5 http://192.0.2.1/ 2>&1
until ${ask} | grep -q EGRESS_DENIED; do sleep 0.1; done; echo healed`,
        { timeoutMs: 60_000 },
      );
      await run(`until [ -e /tmp/${end} ]; do sleep 0.05; done`);
      const door = (await containersOf(environment.id)).find(
        ({ Labels }) => Labels["moorage.role"] === "door",
      );
      const container = (await openEngine()).docker.getContainer(door?.Id ?? "");
      await (end === "remove" ? container.remove({ force: true }) : container.kill());
      const { output, notes } = await watching;
      expect(output).toMatch(/to 127.0.0.1 port 3128[\s\S]*192\.0\.2\.1[\s\S]*healed\n$/);
      expect(notes[0]).toMatch(/^The way to the egress proxy was closed from outside: nothing was reachable/);
    }
    await expect.poll(async () => (await environment.exec("true")).notes, { timeout: 10_000 }).toEqual([]);
    // A daemon that left its session and dropped every variable goes with the container.
    const sleep = uniqueSleep();
    await run(`env -i setsid sh -c 'exec ${sleep}' >/dev/null 2>&1 &`);
    await expect.poll(() => pidsOf(sleep).length, { timeout: 10_000 }).toBe(1);
    await environment.stop();
    expect(pidsOf(sleep)).toEqual([]);
    expect(await containersOf(environment.id)).toEqual([]);
  });

  it("a container that comes back after a loss has its door again", async () => {
    const { environment, run } = make({ allow: ["allowed.test"] });
    await environment.start();
    const own = await containersOf(environment.id);
    const main = own.find(({ Labels }) => Labels["moorage.role"] === undefined);
    await (await openEngine()).docker.getContainer(main?.Id ?? "").remove({ force: true });
    expect(await run("curl -sS http://denied.test/")).toMatch(/EGRESS_DENIED/);
    expect((await containersOf(environment.id)).length).toBe(2);
  });

  it("a kept container with a network is not taken for one without", async () => {
    const id = `kept-${crypto.randomUUID().slice(0, 8)}`;
    const open = make("open", BUSYBOX_IMAGE, { keep: true, id });
    await open.environment.start();
    await open.environment.stop();
    try {
      await expect(make("none", BUSYBOX_IMAGE, { keep: true, id }).environment.start()).rejects.toMatchObject(
        {
          code: "UNSUPPORTED",
          message: expect.stringMatching(/was made with the network/),
        },
      );
      expect((await containersOf(id)).length).toBe(1);
    } finally {
      for (const { Id } of await containersOf(id))
        await (await openEngine()).docker.getContainer(Id).remove({ force: true });
    }
  });
});
