import { networkInterfaces } from "node:os";
import { describe, expect, it } from "vitest";
import {
  canonicalAddress,
  isOwnAddress,
  makeRange,
  specialAddress,
} from "../../../environments/egress/addresses.ts";

const SPECIAL: readonly (readonly [address: string, kind: string])[] = [
  ["169.254.169.254", "metadata"],
  ["168.63.129.16", "metadata"],
  ["100.100.100.200", "metadata"],
  ["192.0.0.192", "metadata"],
  ["fd00:ec2::254", "metadata"],
  ["0.0.0.0", "unspecified"],
  ["0.1.2.3", "unspecified"],
  ["::", "unspecified"],
  ["127.0.0.1", "loopback"],
  ["127.255.255.254", "loopback"],
  ["::1", "loopback"],
  ["0:0:0:0:0:0:0:1", "loopback"],
  ["10.0.0.1", "private"],
  ["172.16.0.1", "private"],
  ["172.31.255.255", "private"],
  ["192.168.1.1", "private"],
  ["fc00::1", "private"],
  ["fdff::1", "private"],
  ["169.254.1.1", "link-local"],
  ["fe80::1", "link-local"],
  ["febf::1", "link-local"],
  ["100.64.0.1", "shared (carrier NAT)"],
  ["224.0.0.1", "multicast"],
  ["239.255.255.250", "multicast"],
  ["ff02::1", "multicast"],
  ["255.255.255.255", "broadcast"],
  ["192.0.2.1", "documentation"],
  ["2001:db8::1", "documentation"],
  ["198.18.0.1", "benchmarking"],
  ["240.0.0.1", "reserved"],
  ["4000::1", "reserved"],
  ["::ffff:169.254.169.254", "IPv4-mapped of metadata"],
  ["::ffff:a9fe:a9fe", "IPv4-mapped of metadata"],
  ["::FFFF:10.0.0.1", "IPv4-mapped of private"],
  ["0:0:0:0:0:ffff:7f00:1", "IPv4-mapped of loopback"],
  ["::ffff:0:127.0.0.1", "IPv4-translated of loopback"],
  ["::127.0.0.1", "IPv4-compatible of loopback"],
  ["64:ff9b::a9fe:a9fe", "NAT64 of metadata"],
  ["64:ff9b::10.0.0.1", "NAT64 of private"],
  ["64:ff9b:1::8.8.8.8", "NAT64 of a local network"],
  ["2002:a9fe:a9fe::", "6to4 of metadata"],
  ["2002:808:808::", "6to4"],
  ["2001:0:4136:e378:8000:63bf:5601:5601", "Teredo of metadata"],
  ["2606:4700::5efe:a00:1", "ISATAP of private"],
  ["2606:4700::200:5efe:169.254.169.254", "ISATAP of metadata"],
  ["fe80::5efe:808:808", "link-local"],
  ["fe80::1%eth0", "malformed"],
  ["127.1", "malformed"],
  ["0x7f000001", "malformed"],
  ["2130706433", "malformed"],
  ["", "malformed"],
];

describe("specialAddress()", () => {
  it.each(SPECIAL)("EG-11, EG-12, EG-14: %s is %s", (address, kind) => {
    expect(specialAddress(address)).toBe(kind);
  });

  it.each([
    "8.8.8.8",
    "1.1.1.1",
    "172.15.0.1",
    "172.32.0.1",
    "100.128.0.1",
    "2606:4700::1111",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2606:4700::200:5efe:808:808",
  ])("%s is public", (address) => {
    expect(specialAddress(address)).toBeNull();
  });
});

describe("makeRange()", () => {
  it("keeps families apart and knows its edges", () => {
    const range = makeRange("10.1.0.0/16");
    expect(
      ["10.1.0.0", "10.1.255.255", "10.2.0.0", "::ffff:10.1.0.1"].map((address) => range.contains(address)),
    ).toEqual([true, true, false, false]);
  });

  it.each([
    "10.0.0.0/33",
    "10.0.0.0/",
    "10.0.0.0/-1",
    "10.0.0.0/8/8",
    "10.0.0.1/8",
    "::1/129",
    "fe80::1%x/64",
    "host/8",
    "/8",
    "10.0.0/8",
  ])("refuses %s", (text) => {
    expect(() => makeRange(text)).toThrow(TypeError);
  });
});

describe("canonicalAddress()", () => {
  it("gives one spelling", () => {
    expect(["::FFFF:1.2.3.4", "0:0::ffff:102:304"].map(canonicalAddress)).toEqual([
      "::ffff:1.2.3.4",
      "::ffff:1.2.3.4",
    ]);
  });
});

it("isOwnAddress() knows every address of this machine and no other", () => {
  const own = Object.values(networkInterfaces()).flatMap((list) =>
    (list ?? []).map(({ address }) => address),
  );
  expect(own.filter((address) => !isOwnAddress(address))).toEqual([]);
  expect(own.length).toBeGreaterThan(0);
  expect(["93.184.216.34", "2606:2800:220:1::1"].filter(isOwnAddress)).toEqual([]);
});
