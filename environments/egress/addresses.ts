/**
 * Which IP addresses belong to nobody on the public internet: private, loopback, link-local, metadata, multicast,
 * shared and reserved ones, in IPv4, in IPv6, and IPv4 ones embedded in IPv6. A place with a policy reaches none of
 * them unless the policy names the address itself.
 *
 * @see https://www.iana.org/assignments/iana-ipv4-special-registry and iana-ipv6-special-registry
 */
import { BlockList, isIP, SocketAddress } from "node:net";
import { networkInterfaces } from "node:os";

/** Kinds by range; the first that holds an address names it. */
const SPECIAL: readonly (readonly [kind: string, ranges: readonly string[]])[] = [
  // Services of cloud providers that hand credentials to whoever asks; two lie in ordinary ranges.
  ["metadata", ["169.254.169.254/32", "168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32"]],
  ["metadata", ["fd00:ec2::254/128", "fd20:ce::254/128", "fe80::a9fe:a9fe/128"]],
  ["unspecified", ["0.0.0.0/8", "::/128"]],
  ["loopback", ["127.0.0.0/8", "::1/128"]],
  ["private", ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"]],
  ["link-local", ["169.254.0.0/16", "fe80::/10"]],
  ["shared (carrier NAT)", ["100.64.0.0/10"]],
  ["multicast", ["224.0.0.0/4", "ff00::/8"]],
  ["broadcast", ["255.255.255.255/32"]],
  ["documentation", ["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"]],
  ["benchmarking", ["198.18.0.0/15", "2001:2::/48"]],
  ["reserved", ["192.0.0.0/24", "192.88.99.0/24", "240.0.0.0/4"]],
  ["reserved", ["100::/64", "100:0:0:1::/64", "2001::/23", "5f00::/16"]],
];

/** IPv6 forms that carry an IPv4 address: prefix, and the byte at which it starts. */
const EMBEDDINGS: readonly (readonly [kind: string, prefix: string, at: number, inverted?: true])[] = [
  ["IPv4-mapped", "::ffff:0:0/96", 12],
  ["IPv4-translated", "::ffff:0:0:0/96", 12],
  ["IPv4-compatible", "::/96", 12],
  ["NAT64", "64:ff9b::/96", 12],
  ["6to4", "2002::/16", 2],
  ["Teredo", "2001::/32", 12, true],
];

/**
 * Below any prefix: the middle of the lower half tells that an IPv4 address of the site follows, which its ISATAP router
 * would send on to.
 *
 * @see RFC 5214 section 6.1
 */
function isatapAddress(address: string): string | null {
  const bytes = addressBytes(address);
  const marked =
    (bytes[8] === 0 || bytes[8] === 2) && bytes[9] === 0 && bytes[10] === 0x5e && bytes[11] === 0xfe;
  return marked ? bytes.slice(12).join(".") : null;
}

/** Local NAT64 prefixes carry an address at a place that only their network knows. */
const LOCAL_NAT64 = makeRange("64:ff9b:1::/48");

const SPECIAL_LISTS = SPECIAL.map(([kind, ranges]) => ({ kind, ranges: ranges.map(makeRange) }));
const EMBEDDING_LISTS = EMBEDDINGS.map(([kind, prefix, at, inverted]) => ({
  kind,
  range: makeRange(prefix),
  at,
  inverted: inverted === true,
}));

export interface AddressRange {
  readonly text: string;
  contains(address: string): boolean;
}

/**
 * A range such as `10.0.0.0/8`, or one address. IPv4 ranges do not hold IPv4-mapped addresses.
 *
 * @throws {TypeError} when it is no range, or has bits set behind its prefix
 */
export function makeRange(text: string): AddressRange {
  const [network = "", bits, ...rest] = text.split("/");
  const family = isIP(network);
  const width = family === 4 ? 32 : 128;
  const prefix = bits === undefined ? width : Number(bits);
  if (family === 0 || network.includes("%") || rest.length > 0 || !/^(?:|\d{1,3})$/.test(bits ?? ""))
    throw new TypeError(`"${text}" is no address range`);
  if (bits === "" || prefix > width) throw new TypeError(`"${text}" is no address range`);
  if (!tailIsZero(addressBytes(network), prefix))
    throw new TypeError(`"${text}" has bits set behind its prefix of ${prefix}`);
  const type = family === 4 ? "ipv4" : "ipv6";
  const list = new BlockList();
  list.addSubnet(network, prefix, type);
  return {
    text,
    // BlockList takes an IPv4-mapped address for the IPv4 one; spellings are told apart here.
    contains: (address) => isIP(address) === family && list.check(address, type),
  };
}

function tailIsZero(bytes: readonly number[], prefix: number): boolean {
  return bytes.every((byte, index) => {
    const kept = Math.max(0, Math.min(8, prefix - index * 8));
    return (byte & (0xff >> kept)) === 0;
  });
}

/** 4 or 16 bytes of a valid address. */
function addressBytes(address: string): readonly number[] {
  if (isIP(address) === 4) return address.split(".").map(Number);
  const dotted = /^(.*:)(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(address);
  const [, head = "", a, b, c, d] = dotted ?? [];
  const word = (high: string | undefined, low: string | undefined) =>
    ((Number(high) << 8) | Number(low)).toString(16);
  const plain = dotted ? `${head}${word(a, b)}:${word(c, d)}` : address;
  const [left = "", right] = plain.split("::");
  const words = (part: string | undefined) => (part ? part.split(":") : []);
  const [first, last] = [words(left), words(right)];
  const gap = right === undefined ? [] : Array<string>(8 - first.length - last.length).fill("0");
  return [...first, ...gap, ...last].flatMap((text) => {
    const value = Number.parseInt(text, 16);
    return [value >> 8, value & 0xff];
  });
}

/**
 * IPv4 addresses that an IPv6 one carries, in any of its forms, whether or not a network obeys it.
 *
 * @param address in its one spelling
 */
export function embeddedAddresses(address: string): readonly string[] {
  if (isIP(address) !== 6 || address.includes("%")) return [];
  const isatap = isatapAddress(address);
  return [
    ...EMBEDDING_LISTS.filter(({ range }) => range.contains(address)).map((form) =>
      innerAddress(address, form),
    ),
    ...(isatap === null ? [] : [isatap]),
  ];
}

function innerAddress(address: string, { at, inverted }: (typeof EMBEDDING_LISTS)[number]): string {
  const bytes = addressBytes(address).slice(at, at + 4);
  return bytes.map((byte) => (inverted ? byte ^ 0xff : byte)).join(".");
}

/** One spelling for each address: `::FFFF:1.2.3.4` and `0:0::ffff:102:304` become the same. */
export function canonicalAddress(address: string): string {
  if (isIP(address) !== 6) return address;
  return new SocketAddress({ address, family: "ipv6" }).address.toLowerCase();
}

/**
 * Tells why an address is nobody's on the public internet, such as `loopback` or `6to4 of private`.
 *
 * @returns null for a public address; what is no address at all is never public
 */
export function specialAddress(address: string): string | null {
  const family = isIP(address);
  if (family === 0 || address.includes("%")) return "malformed";
  const special = SPECIAL_LISTS.find(({ ranges }) => ranges.some((range) => range.contains(address)));
  if (family === 4) return special?.kind ?? null;
  if (LOCAL_NAT64.contains(address)) return "NAT64 of a local network";
  if (special && special.kind !== "reserved") return special.kind;
  const embedding = EMBEDDING_LISTS.find(({ range }) => range.contains(address));
  if (embedding) {
    // A relay of unknown owners stands between; the forms of one and the same address are as public as it is.
    const kind = specialAddress(innerAddress(address, embedding));
    if (kind !== null) return `${embedding.kind} of ${kind}`;
    return embedding.kind === "IPv4-mapped" || embedding.kind === "NAT64" ? null : embedding.kind;
  }
  if (special) return special.kind;
  const isatap = isatapAddress(address);
  // One that only looks so, with an address that is anybody's, is as public as it is itself.
  const inner = isatap === null ? null : specialAddress(isatap);
  if (inner !== null) return `ISATAP of ${inner}`;
  // Only 2000::/3 is given out.
  return GLOBAL_UNICAST.contains(address) ? null : "reserved";
}

/**
 * Whether a connection to it ends on this machine: a public address of its own leads from here to services that are
 * closed to everybody else.
 */
export function isOwnAddress(address: string): boolean {
  return Object.values(networkInterfaces()).some((list) =>
    list?.some((own) => canonicalAddress(own.address) === address),
  );
}

const GLOBAL_UNICAST = makeRange("2000::/3");
