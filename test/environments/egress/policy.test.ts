import { describe, expect, it } from "vitest";
import type { EgressPolicy } from "../../../environments/base.ts";
import { parseAuthority, parseHost } from "../../../environments/egress/host.ts";
import { compilePolicy, judgeText } from "../../../environments/egress/policy.ts";

const verdict = (policy: EgressPolicy, host: string, port = 443) =>
  judgeText(compilePolicy(policy), host, port);
const allowed = (policy: EgressPolicy, host: string, port = 443) => verdict(policy, host, port).allowed;
const example = {
  allow: ["example.com", "*.example.org", "git.example.net:22", "203.0.114.7", "10.1.0.0/16"],
};

describe("an egress policy", () => {
  it.each([
    ["example.com", true],
    ["EXAMPLE.com.", true],
    ["example.com..", false],
    ["www.example.com", false],
    ["example.com.evil.test", false],
    ["evilexample.com", false],
    ["a.example.org", true],
    ["a.b.example.org", true],
    ["A.EXAMPLE.ORG.", true],
    ["example.org", false],
    ["notexample.org", false],
    [".example.org", false],
    ["a..example.org", false],
    ["a.example.org.evil.test", false],
    ["203.0.114.7", true],
    ["203.0.114.8", false],
    ["10.1.2.3", true],
    ["10.2.2.3", false],
    ["[::ffff:10.1.2.3]", false],
    ["169.254.169.254", false],
  ])("EG-09: for %s says %s", (host, expected) => {
    expect(allowed(example, host)).toBe(expected);
  });

  it.each([
    "attacker.test\0.example.com",
    "example.com\r",
    "example.com\n",
    "exa mple.com",
    "example.com%00",
    "example%2ecom",
    "example.com\\",
    "user@example.com",
    "example.com@evil.test",
    "example.com#",
    "example.com?",
    "example.com/",
    "example.com:80",
    "[example.com]",
    "",
    ".",
    "..",
    "-example.com",
    `${"a".repeat(64)}.example.org`,
    `${"a.".repeat(150)}example.org`,
    "a".repeat(5000),
    "exam\u00adple.com\u0000",
    "example\u3002com",
    "example.com\u2028",
    "xn--.example.org",
    "2852039166",
    "0xA9FEA9FE",
    "0251.0376.0251.0376",
    "169.254.43518",
    "0",
    "127.1",
    "127.0.0.01",
    "1.2.3.4.",
    "１２７.０.０.１",
    "[fe80::1%25eth0]",
    "[::1",
    "::1",
    "[]",
    "*",
    "*.example.org",
  ])("refuses %j before it matches, also with *", (host) => {
    expect(() => parseHost(host)).toThrow(/./);
    const { allowed: isAllowed, rule } = verdict(
      { allow: ["*", "*.example.org", "example.com", "0.0.0.0/0", "::/0"] },
      host,
    );
    expect([isAllowed, rule]).toEqual([false, expect.stringMatching(/^malformed host/)]);
  });

  it("reads international names as what they are on the wire", () => {
    expect(allowed({ allow: ["bücher.example"] }, "xn--bcher-kva.example")).toBe(true);
    expect(allowed({ allow: ["xn--bcher-kva.example"] }, "BÜCHER.example.")).toBe(true);
    expect(allowed({ allow: ["paypal.com"] }, "pаypal.com")).toBe(false);
  });

  it("EG-15: allows ports 80 and 443 unless a port is listed", () => {
    const ports = [80, 443, 22, 25, 2375, 6379];
    expect(ports.map((port) => allowed(example, "example.com", port))).toEqual([
      true,
      true,
      false,
      false,
      false,
      false,
    ]);
    expect([22, 443].map((port) => allowed(example, "git.example.net", port))).toEqual([true, false]);
    expect(verdict(example, "example.com", 22)).toEqual({
      allowed: false,
      rule: 'port 22 is not in "example.com"',
      allowWith: "example.com:22",
    });
  });

  it("lets deny win, in whatever order and on every port", () => {
    const policy = {
      allow: ["!secret.example.org", "*.example.org", "secret.example.org:22"],
      deny: ["10.1.2.0/24", "*.bad.test"],
    };
    expect(verdict(policy, "secret.example.org")).toEqual({
      allowed: false,
      rule: "!secret.example.org",
      allowWith: null,
    });
    expect(allowed(policy, "secret.example.org", 22)).toBe(false);
    expect(allowed(policy, "open.example.org")).toBe(true);
    expect(allowed({ allow: ["*", "!*"] }, "example.com")).toBe(false);
    expect(allowed({ allow: ["10.1.0.0/16"], deny: ["10.1.2.0/24"] }, "10.1.2.3")).toBe(false);
  });

  it("allows nothing by an empty list or none", () => {
    for (const policy of [{ allow: [] }, "none"] as const) expect(allowed(policy, "example.com")).toBe(false);
    expect(allowed("open", "example.com", 25)).toBe(true);
  });

  it("EG-14: does not mean metadata services or addresses by *", () => {
    const all = { allow: ["*"] };
    for (const host of ["metadata.google.internal", "instance-data", "169.254.169.254", "[::1]", "8.8.8.8"])
      expect([host, allowed(all, host)]).toEqual([host, false]);
    expect(allowed(all, "example.com")).toBe(true);
  });

  it("EG-13: judges the dialled address apart from the name", () => {
    const policy = compilePolicy({ allow: ["example.com", "*", "10.1.0.0/16"], deny: ["8.8.4.0/24"] });
    const judged = [
      "93.184.216.34",
      "127.0.0.1",
      "169.254.169.254",
      "::ffff:10.0.0.1",
      "10.1.2.3",
      "8.8.4.4",
      "::ffff:8.8.4.4",
      "64:ff9b::808:404",
      "64:ff9b::5db8:d822",
      "nonsense",
    ];
    expect(judged.map((address) => policy.judgeAddress(address, 443).allowed)).toEqual([
      true,
      false,
      false,
      false,
      true,
      false,
      false,
      false,
      true,
      false,
    ]);
    expect(policy.judgeAddress("127.0.0.1", 8080)).toEqual({
      allowed: false,
      rule: "loopback address",
      allowWith: "127.0.0.1:8080",
    });
  });

  it("leads to this machine's own public addresses by no name, whatever carries them", () => {
    const isOwn = (address: string) => ["93.184.216.34", "2606:2800:220:1::1"].includes(address);
    const policy = compilePolicy({ allow: ["*", "example.com"] }, isOwn);
    const judged = ["93.184.216.34", "::ffff:93.184.216.34", "64:ff9b::5db8:d822", "2606:2800:220:1::1"];
    expect(judged.map((address) => policy.judgeAddress(address, 443).rule)).toEqual(
      judged.map(() => "this machine's own address"),
    );
    expect(policy.judgeAddress("93.184.216.35", 443).allowed).toBe(true);
    expect(compilePolicy({ allow: ["93.184.216.34"] }, isOwn).judgeAddress("93.184.216.34", 80).allowed).toBe(
      true,
    );
  });

  it.each([
    "",
    " ",
    "a b",
    "*example.com",
    "**.example.com",
    "*.*",
    "a.*.b",
    "example.com:0",
    "example.com:65536",
    "example.com:x",
    "10.0.0.1/8",
    "10.0.0.0/33",
    "http://example.com",
    "user@example.com",
    "example.com/path",
    "!",
    "!!a.test",
    "127.1",
    "*.10.0.0.1",
    "host:1:2",
    "[::1]:0",
  ])("refuses the rule %j", (rule) => {
    expect(() => compilePolicy({ allow: [rule] })).toThrow(/egress rule/);
  });

  it.each([
    ["[::1]:8080", "[::1]", 8080],
    ["::1", "[::1]", 443],
    ["fc00::/7", "[fd12::1]", 443],
    ["[fc00::/7]:9000", "[fd12::1]", 9000],
    ["10.0.0.0/8:9000", "10.2.3.4", 9000],
    ["*:8443", "any.test", 8443],
    ["localhost:3000", "localhost", 3000],
  ])("reads the rule %s", (rule, host, port) => {
    expect(allowed({ allow: [rule] }, host, port)).toBe(true);
    expect(allowed({ allow: [rule] }, host, port + 1)).toBe(false);
  });

  it("reads authorities", () => {
    expect(parseAuthority("Example.com:8080")).toEqual({
      host: { kind: "name", host: "example.com" },
      port: 8080,
    });
    expect(parseAuthority("[::1]:1").host).toEqual({ kind: "address", host: "::1" });
    for (const text of ["a:", "a:1:2", "a:+1", "a: 1", "[::1]x:1", "a@b:1", "a:99999"])
      expect(() => parseAuthority(text)).toThrow(/./);
  });
});
