import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { type Destination, resolveRoute } from "../../../environments/ssh/config.ts";
import { temporaryFolder } from "./sshd.ts";

let home: ReturnType<typeof temporaryFolder>;

beforeEach(() => {
  home = temporaryFolder();
  vi.stubEnv("HOME", home.path);
  vi.stubEnv("SSH_AUTH_SOCK", "/run/agent");
  mkdirSync(join(home.path, ".ssh"), { mode: 0o700 });
});
afterEach(() => {
  vi.unstubAllEnvs();
  home[Symbol.dispose]();
});

function write(name: string, ...lines: string[]): void {
  mkdirSync(join(home.path, ".ssh", name, ".."), { recursive: true });
  writeFileSync(join(home.path, ".ssh", name), `${lines.join("\n")}\n`, { mode: 0o600 });
}

function route(host: string, more: Partial<Destination> = {}) {
  return resolveRoute({ host, user: null, port: null, ...more });
}

function last(host: string, more: Partial<Destination> = {}) {
  const settings = route(host, more).hops.at(-1);
  if (!settings) throw new Error("A route has a hop");
  return settings;
}

describe("resolveRoute()", () => {
  it("takes the first value of each keyword, whichever pattern gave it", () => {
    write(
      "config",
      "Host box",
      "  User first",
      "  Port=2201",
      "Host b*",
      "  User second",
      '  HostName "10.0.0.7"',
      "Host *",
      "  Port 9",
      "  User third",
    );
    expect(last("box")).toMatchObject({ name: "box", host: "10.0.0.7", port: 2201, user: "first" });
    expect(last("bax")).toMatchObject({ host: "10.0.0.7", port: 9, user: "second" });
    expect(last("other")).toMatchObject({ host: "other", port: 9, user: "third" });
  });

  it("lets the caller's user and port win", () => {
    write("config", "Host *", "  User nobody", "  Port 9");
    expect(last("box", { user: "me", port: 2222 })).toMatchObject({ user: "me", port: 2222 });
  });

  it("knows negated and several patterns", () => {
    write("config", "Host *.example.org !old.example.org web?", "  User deploy");
    expect(last("new.example.org").user).toBe("deploy");
    expect(last("web1").user).toBe("deploy");
    expect(last("old.example.org").user).not.toBe("deploy");
    expect(last("web10").user).not.toBe("deploy");
  });

  it("reads included files in their place, by pattern, relative to ~/.ssh", () => {
    write("config", "Include conf.d/*.conf", "Host jump", "  User late");
    write("conf.d/a.conf", "Host jump", "  HostName 127.0.0.1", "  User early", "  Port 2201");
    write("conf.d/ignored.txt", "Host jump", "  Port 1");
    expect(last("jump")).toMatchObject({ host: "127.0.0.1", port: 2201, user: "early" });
  });

  it("reads an Include inside a Host block only for that host, and keeps the block active after it", () => {
    write("config", "Host a", "  Include inner", "  Port 7", "Host *", "  Port 8");
    write("inner", "User inner", "Host b", "  User never");
    expect(last("a")).toMatchObject({ user: "inner", port: 7 });
    expect(last("b").port).toBe(8);
    expect(last("b").user).not.toBe("never");
  });

  it("refuses an Include of itself", () => {
    write("config", "Include config");
    expect(() => route("a")).toThrow(/Include goes deeper/);
  });

  it("follows Match by host, original host and user, and never runs a Match exec", () => {
    const mark = join(home.path, "ran");
    write(
      "config",
      "Host web",
      "  HostName 10.1.1.1",
      `Match exec "touch ${mark}"`,
      "  Port 1",
      "Match host 10.1.* user me",
      "  Port 2",
      "Match originalhost web",
      "  Port 3",
      "Match all",
      "  ConnectTimeout 4",
    );
    expect(last("web", { user: "me" }).port).toBe(2);
    expect(last("web", { user: "you" }).port).toBe(3);
    expect(last("x").connectTimeoutMs).toBe(4_000);
    expect(route("web").notes).toEqual([expect.stringMatching(/config:3: Match exec is not followed/)]);
    expect(() => chmodSync(mark, 0o600)).toThrow(/ENOENT/);
  });

  it("expands tokens, home and variables in paths", () => {
    vi.stubEnv("KEYS", "/keys");
    write(
      "config",
      "Host box",
      "  HostName %h.example.org",
      "  User me",
      "  IdentityFile ~/.ssh/%r@%h-%n-%p",
      "  IdentityFile ${KEYS}/100%%",
      "  IdentityAgent ~/agent-%u",
      "  UserKnownHostsFile ~/known-%k /dev/null",
    );
    const settings = last("box");
    expect(settings.host).toBe("box.example.org");
    expect(settings.identityFiles).toEqual([`${home.path}/.ssh/me@box.example.org-box-22`, "/keys/100%"]);
    expect(settings.agent).toMatch(new RegExp(`^${home.path}/agent-\\w+$`));
    expect(settings.knownHostsFiles.slice(0, 2)).toEqual([`${home.path}/known-box`, "/dev/null"]);
  });

  it("refuses an unknown token", () => {
    write("config", "Host box", "  IdentityFile ~/%y");
    expect(() => route("box")).toThrow(/"%y" has no meaning/);
  });

  it.each([
    ["none", null],
    ["SSH_AUTH_SOCK", "/run/agent"],
    ["$OTHER_AGENT", "/run/other"],
    ["/run/third", "/run/third"],
  ])("takes IdentityAgent %s", (value, expected) => {
    vi.stubEnv("OTHER_AGENT", "/run/other");
    write("config", `IdentityAgent ${value}`);
    expect(last("box").agent).toBe(expected);
  });

  it("resolves every hop of a ProxyJump under its own name", () => {
    write(
      "config",
      "Include hosts",
      "Host t",
      "  HostName 10.0.0.9",
      "  ProxyJump jump",
      "Host u",
      "  ProxyJump me@one:2200,[::1]:22",
    );
    write(
      "hosts",
      "Host jump",
      "  HostName 127.0.0.1",
      "  Port 2201",
      "  User gate",
      "  IdentityAgent /run/gate",
      "  HostKeyAlias gate-key",
    );
    expect(route("t").hops).toMatchObject([
      {
        name: "jump",
        host: "127.0.0.1",
        port: 2201,
        user: "gate",
        agent: "/run/gate",
        hostKeyName: "gate-key",
        hostKeyPort: 22,
      },
      { name: "t", host: "10.0.0.9", port: 22, hostKeyName: "10.0.0.9" },
    ]);
    expect(route("u").hops).toMatchObject([
      { host: "one", user: "me", port: 2200 },
      { host: "::1", port: 22 },
      { host: "u" },
    ]);
  });

  it("follows a jump host's own ProxyJump, and not into a circle", () => {
    write(
      "config",
      "Host a",
      "  ProxyJump b",
      "Host b",
      "  ProxyJump c",
      "Host x",
      "  ProxyJump y",
      "Host y",
      "  ProxyJump x",
    );
    expect(route("a").hops.map(({ name }) => name)).toEqual(["c", "b", "a"]);
    expect(() => route("x")).toThrow(/circle/);
  });

  it("does not send a bastion through itself", () => {
    write("config", "Host *", "  ProxyJump bastion");
    expect(route("box").hops.map(({ name }) => name)).toEqual(["bastion", "box"]);
  });

  it("takes ProxyJump none for no jump, and refuses a ProxyCommand", () => {
    write(
      "config",
      "Host a",
      "  ProxyJump none",
      "Host b",
      "  ProxyCommand nc %h %p",
      "Host *",
      "  ProxyJump gate",
    );
    expect(route("a").hops).toHaveLength(1);
    write("config", "Host b", "  ProxyCommand nc %h %p");
    expect(() => route("b")).toThrow(expect.objectContaining({ code: "UNSUPPORTED" }));
  });

  it("checks host keys whatever the configuration says, and takes accept-new", () => {
    write("config", "Host a", "  StrictHostKeyChecking no", "Host b", "  StrictHostKeyChecking accept-new");
    expect(last("a").hostKeyPolicy).toBe("strict");
    expect(route("a").notes).toEqual([expect.stringContaining("StrictHostKeyChecking no")]);
    expect(last("b").hostKeyPolicy).toBe("accept-new");
  });

  it("refuses a configuration that others may write to", () => {
    write("config", "Host *");
    chmodSync(join(home.path, ".ssh", "config"), 0o666);
    expect(() => route("box")).toThrow(expect.objectContaining({ code: "INVALID_CONFIG" }));
  });

  it.each(["-oProxyCommand=touch x", "a b", "a;b", "$(x)", "a\nb", ""])("refuses the host %j", (host) => {
    expect(() => route(host)).toThrow(expect.objectContaining({ code: "INVALID_SPEC" }));
  });

  it("refuses a HostName and a user that could be an option", () => {
    write("config", "Host box", "  HostName -oProxyCommand=x", "Host bax", "  User -x");
    expect(() => route("box")).toThrow(expect.objectContaining({ code: "INVALID_SPEC" }));
    expect(() => route("bax")).toThrow(expect.objectContaining({ code: "INVALID_SPEC" }));
  });

  it.each([
    ["10", 10_000],
    ["10s", 10_000],
    ["1m30s", 90_000],
    ["2H", 7_200_000],
    ["none", null],
    ["0", null],
    ["100w", 2 ** 31 - 1],
  ])("reads ConnectTimeout %s as ssh writes times", (text, connectTimeoutMs) => {
    write("config", `ConnectTimeout ${text}`);
    expect(last("box")).toMatchObject({ connectTimeoutMs });
  });

  it.each(["ConnectTimeout soon", 'User "me', "Host a\n  IdentityFile ~/it's", "User 'me\" x"])(
    "refuses %j, of which ssh makes nothing either",
    (text) => {
      write("config", text);
      expect(() => route("box")).toThrow(expect.objectContaining({ code: "INVALID_CONFIG" }));
    },
  );

  it("lets what comes first of ProxyJump and ProxyCommand keep the other out", () => {
    write(
      "config",
      "Host direct",
      "  ProxyCommand none",
      "Host command",
      "  ProxyCommand nc %h %p",
      "Host jump none",
      "  ProxyJump bastion",
      "Host bastion direct",
      "  Port 9",
      "Host none",
      "  ProxyCommand none",
      "Host * !bastion",
      "  ProxyJump other",
    );
    write("late", "");
    expect(route("direct").hops.map(({ name }) => name)).toEqual(["direct"]);
    expect(() => route("command")).toThrow(expect.objectContaining({ code: "UNSUPPORTED" }));
    expect(route("jump").hops.map(({ name }) => name)).toEqual(["bastion", "jump"]);
    expect(route("none").hops.map(({ name }) => name)).toEqual(["bastion", "none"]);
  });

  it("records new keys in a file of the user's alone", () => {
    write("config", "Host a", "  UserKnownHostsFile none", "Host b", "  UserKnownHostsFile ~/one ~/two");
    expect(last("a").newKeysFile).toBeNull();
    expect(last("a").knownHostsFiles.length).toBeGreaterThan(0);
    expect(last("b").newKeysFile).toBe(`${home.path}/one`);
    expect(last("c").newKeysFile).toBe(`${home.path}/.ssh/known_hosts`);
  });

  it("says what changes whom is trusted and is not followed", () => {
    write(
      "config",
      "KnownHostsCommand /bin/keys %H",
      "CanonicalizeHostname yes",
      "RevokedHostKeys ~/revoked",
    );
    expect(route("box").notes).toEqual([
      "CanonicalizeHostname of box is not followed",
      "KnownHostsCommand of box is not followed",
    ]);
    expect(last("box").revokedKeysFile).toBe(`${home.path}/revoked`);
  });

  it("does without any file", () => {
    expect(last("box")).toMatchObject({
      host: "box",
      port: 22,
      hostKeyPolicy: "strict",
      identitiesOnly: false,
      identityFiles: expect.arrayContaining([`${home.path}/.ssh/id_ed25519`]),
    });
  });
});

/** What a configuration comes to in the eyes of `ssh -G`. */
function sshOf(host: string) {
  const text = execFileSync("ssh", ["-G", "-F", join(home.path, ".ssh", "config"), host], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
  });
  const value = (keyword: string) =>
    text
      .split("\n")
      .flatMap((line) => (line.startsWith(`${keyword} `) ? [line.slice(keyword.length + 1)] : []));
  return { host: value("hostname")[0], port: Number(value("port")[0]), user: value("user")[0] };
}

describe.runIf(existsSync("/usr/bin/ssh"))("resolveRoute(), as ssh itself,", () => {
  it.each([
    ["counts the case of an alias", "target", "Host TARGET\n User upper\nHost target\n User lower"],
    ["compares an alias as it was given", "Target", "Host target\n User lower\nHost *\n User any"],
    ["does not count the case of a host", "Target", "Match host target\n User lower"],
    ["counts the case of a user", "t", "User bob\nMatch user BOB\n Port 99\nMatch user bob\n Port 98"],
    [
      "reads again for a Match final",
      "t",
      "Host t\n HostName real.example\nMatch final host real.example\n User fin",
    ],
    [
      "compares Host with the real name then",
      "t",
      "Match final all\n Port 9\nHost real.example\n User fin\nHost t\n HostName Real.example",
    ],
    ["keeps first values then", "t", "Match final all\n User fin\nHost t\n User first"],
    ["knows what is not final", "t", "Match !final all\n User first\nMatch final all\n Port 9"],
    [
      "reads once without it",
      "t",
      "Match canonical all\n User never\nHost real\n Port 9\nHost t\n HostName real",
    ],
    ["takes every form of a line", "t", 'Host=t\r\n\tUser = bob\r\n Port=  77\r\n HostName="h.example"\r\n'],
    ["leaves comments out", "t", "Host t # it's\n User bob # comment\n# it's one\n Port 7 #c"],
    ["splits words with quotes", "a", 'Match host "b,a" user "*"\n Port 5'],
    ["knows no classes of letters", "t1", "Host t[0-9]\n Port 5\nHost t?\n User one"],
    ["takes no dot for any letter", "txe", "Host t.e\n Port 5"],
    ["reads %% and %h of HostName", "t", "HostName a%%%h.example\nMatch host a%t.example\n Port 5"],
    [
      "knows originalhost after HostName",
      "t",
      "HostName x\nMatch originalhost t\n Port 5\nMatch host t\n User no",
    ],
  ])("%s", (_, host, text) => {
    write("config", text);
    const { host: name, port, user } = last(host);
    expect({ host: name, port, user }).toEqual(sshOf(host));
  });
});
