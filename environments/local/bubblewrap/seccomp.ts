/**
 * A filter of system calls for programs in the sandbox, as the kernel takes it: no sockets but those of the internet
 * families (a unix socket of the host could be reached through the read-only root, and vsock knows no network
 * namespace) and no pair of datagram sockets (each of which could be connected anew), nothing that pushes characters into a terminal, nothing that makes or joins namespaces, mounts, keys,
 * modules or kernel programs. Programs of another architecture make no system call at all.
 */

interface Architecture {
  readonly audit: number;
  readonly socket: number;
  readonly socketPair: number;
  readonly ioctl: number;
  /** Refused with EPERM. */
  readonly denied: readonly number[];
}

/** io_uring makes sockets without the system call that is looked at; libraries take ENOSYS for an older kernel. */
const MISSING = [425, 426, 427];
/** open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr have one number everywhere. */
const NEW_MOUNT = [428, 429, 430, 431, 432, 433, 442];

const ARCHITECTURES: Readonly<Record<string, Architecture>> = {
  x64: {
    audit: 0xc000003e,
    socket: 41,
    socketPair: 53,
    ioctl: 16,
    // keyctl…, bpf, perf_event_open, userfaultfd, mount…, setns, unshare, kexec…, modules, open_by_handle_at, swap, reboot
    denied: [
      248,
      249,
      250,
      321,
      298,
      323,
      165,
      166,
      155,
      161,
      308,
      272,
      246,
      320,
      175,
      313,
      176,
      304,
      167,
      168,
      169,
      ...NEW_MOUNT,
    ],
  },
  arm64: {
    audit: 0xc00000b7,
    socket: 198,
    socketPair: 199,
    ioctl: 29,
    denied: [
      217,
      218,
      219,
      280,
      241,
      282,
      40,
      39,
      41,
      51,
      268,
      97,
      104,
      294,
      105,
      273,
      106,
      265,
      224,
      225,
      142,
      ...NEW_MOUNT,
    ],
  },
};

/** AF_INET, AF_INET6, AF_NETLINK. */
const FAMILIES = [2, 10, 16];
/** SOCK_DGRAM, and SOCK_RAW, which a unix socket takes for it. */
const DATAGRAMS = [2, 3];
/** What of a socket's type is no flag. */
const TYPE_MASK = 0xf;
/** TIOCSTI, TIOCLINUX. */
const TERMINAL_REQUESTS = [0x5412, 0x541c];

const ALLOW = 0x7fff0000;
const errno = (number: number) => 0x00050000 | number;
const EPERM = 1;
const ENOSYS = 38;

const LOAD = 0x20;
const EQUAL = 0x15;
const AT_LEAST = 0x35;
const RETURN = 0x06;
const AND = 0x54;
/** Offsets in `struct seccomp_data`; of arguments the low half. */
const AT = { number: 0, audit: 4, argument0: 16, argument1: 24 };

/** Null where the architecture is not known, so that the caller can say that there is no filter. */
export function seccompFilter(architecture: string = process.arch): Buffer | null {
  const known = ARCHITECTURES[architecture];
  if (!known) return null;
  const program: (readonly [code: number, yes: number, no: number, value: number])[] = [];
  const load = (offset: number) => program.push([LOAD, 0, 0, offset]);
  const end = (value: number) => program.push([RETURN, 0, 0, value]);
  /** Returns `value` when what is loaded equals `wanted`. */
  const when = (wanted: number, value: number) => {
    program.push([EQUAL, 0, 1, wanted]);
    end(value);
  };
  load(AT.audit);
  program.push([EQUAL, 1, 0, known.audit]);
  end(errno(EPERM));
  load(AT.number);
  // The x32 forms of x64's calls.
  program.push([AT_LEAST, 0, 1, 0x40000000]);
  end(errno(EPERM));
  for (const number of known.denied) when(number, errno(EPERM));
  for (const number of MISSING) when(number, errno(ENOSYS));
  program.push([EQUAL, 0, FAMILIES.length * 2 + 2, known.socket]);
  load(AT.argument0);
  for (const family of FAMILIES) when(family, ALLOW);
  end(errno(EPERM));
  program.push([EQUAL, 0, DATAGRAMS.length * 2 + 3, known.socketPair]);
  load(AT.argument1);
  program.push([AND, 0, 0, TYPE_MASK]);
  for (const type of DATAGRAMS) when(type, errno(EPERM));
  end(ALLOW);
  program.push([EQUAL, 0, TERMINAL_REQUESTS.length * 2 + 2, known.ioctl]);
  load(AT.argument1);
  for (const request of TERMINAL_REQUESTS) when(request, errno(EPERM));
  end(ALLOW);
  end(ALLOW);
  const bytes = Buffer.alloc(program.length * 8);
  program.forEach(([code, yes, no, value], index) => {
    bytes.writeUInt16LE(code, index * 8);
    bytes.writeUInt8(yes, index * 8 + 2);
    bytes.writeUInt8(no, index * 8 + 3);
    bytes.writeUInt32LE(value, index * 8 + 4);
  });
  return bytes;
}
