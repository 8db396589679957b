/**
 * The filter of system calls for containers with an egress policy. What engines bring themselves leaves ways out that
 * know no network namespace: sockets to the machine that hosts this one (vsock), which old engines do not filter, and
 * which all let through where a 32-bit program makes every kind of socket by one call (`socketcall`).
 *
 * Otherwise it allows what an engine's own filter allows to a container with the few capabilities that ours have.
 */
/**
 * Allowed whatever their arguments: all of Linux but what needs powers that no container of ours has, or gives new
 * ones.
 */
const ALLOWED = `
  _llseek _newselect accept accept4 access adjtimex alarm arch_prctl arm_fadvise64_64 arm_sync_file_range bind
  breakpoint brk cacheflush cachestat capget capset chdir chmod chown chown32 clock_adjtime clock_adjtime64
  clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep clock_nanosleep_time64 close
  close_range connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old
  epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit exit_group faccessat
  faccessat2 fadvise64 fadvise64_64 fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchown32
  fchownat fcntl fcntl64 fdatasync fgetxattr file_getattr file_setattr flistxattr flock fork fremovexattr fsetxattr
  fstat fstat64 fstatat fstatat64 fstatfs fstatfs64 fsync ftime ftruncate ftruncate64 futex futex_requeue
  futex_time64 futex_wait futex_waitv futex_wake futimesat get_robust_list get_thread_area getcpu getcwd getdents
  getdents64 getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getitimer getpeername getpgid
  getpgrp getpid getppid getpriority getrandom getresgid getresgid32 getresuid getresuid32 getrlimit getrusage
  getsid getsockname getsockopt gettid gettimeofday getuid getuid32 getxattr getxattrat inotify_add_watch
  inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_pgetevents_time64
  io_setup io_submit ioctl ioprio_get ioprio_set ipc kill landlock_add_rule landlock_create_ruleset
  landlock_restrict_self lchown lchown32 lgetxattr link linkat listen listxattr listxattrat llistxattr lremovexattr
  lseek lsetxattr lstat lstat64 madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mkdir mkdirat
  mknod mknodat mlock mlock2 mlockall mmap mmap2 modify_ldt mprotect mq_getsetattr mq_notify mq_open mq_timedreceive
  mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync
  munlock munlockall munmap name_to_handle_at nanosleep newfstatat nice oldfstat oldlstat oldolduname oldstat
  olduname open openat openat2 pause pidfd_getfd pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free
  pkey_mprotect poll ppoll ppoll_time64 prctl pread64 preadv preadv2 prlimit64 process_madvise process_mrelease
  pselect6 pselect6_time64 pwrite64 pwritev pwritev2 read readahead readdir readlink readlinkat readv recvfrom
  recvmmsg recvmmsg_time64 recvmsg remap_file_pages removexattr removexattrat rename renameat renameat2
  restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend
  rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min
  sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
  sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp
  select semctl semget semop semtimedop semtimedop_time64 sendfile sendfile64 sendmmsg sendmsg sendto
  set_robust_list set_thread_area set_tid_address set_tls setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32
  setgroups setgroups32 setitimer setpgid setpriority setregid setregid32 setresgid setresgid32 setresuid
  setresuid32 setreuid setreuid32 setrlimit setsid setsockopt setuid setuid32 setxattr setxattrat sgetmask shmat
  shmctl shmdt shmget shutdown sigaction sigaltstack signal signalfd signalfd4 sigpending sigprocmask sigreturn
  sigsuspend socketpair splice ssetmask stat stat64 statfs statfs64 statx symlink symlinkat sync sync_file_range
  sync_file_range2 syncfs sysinfo tee tgkill time timer_create timer_delete timer_getoverrun timer_gettime
  timer_gettime64 timer_settime timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime
  timerfd_settime64 times tkill truncate truncate64 ugetrlimit umask uname unlink unlinkat utime utimensat
  utimensat_time64 utimes vfork vmsplice wait4 waitid waitpid write writev
`;
/** They take other programs' memory, and on older kernels the filter off a program. */
const TRACING = ["ptrace", "process_vm_readv", "process_vm_writev", "kcmp"];
const TRACING_SINCE = "4.8";
/** AF_UNIX, AF_INET, AF_INET6, AF_NETLINK. */
const FAMILIES = [1, 2, 10, 16];
/** Of Linux as it is, of its 32-bit form, without random addresses for both, and the question which it is. */
const PERSONALITIES = [0x0, 0x8, 0x20000, 0x20008, 0xffffffff];
/** Flags of `clone` that make a namespace. */
const NAMESPACES = 0x7e020000;
/**
 * Their arguments cannot be looked at; programs take this answer for another kernel and do without. The last one makes
 * every kind of socket for 32-bit programs, and would be allowed with the first rule that speaks of sockets.
 */
const UNKNOWN = ["clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "socketcall"];
const ENOSYS = 38;
/** The first that understands all of this. */
const ENGINE_SINCE = [20, 10, 10] as const;

const ALLOW = "SCMP_ACT_ALLOW";
const REFUSE = "SCMP_ACT_ERRNO";

/** @returns the filter as an engine takes it */
export function seccompProfile(): string {
  const equal = (name: string, value: number) => ({
    names: [name],
    action: ALLOW,
    args: [{ index: 0, value, valueTwo: 0, op: "SCMP_CMP_EQ" }],
  });
  return JSON.stringify({
    defaultAction: REFUSE,
    archMap: [
      { architecture: "SCMP_ARCH_X86_64", subArchitectures: ["SCMP_ARCH_X86"] },
      { architecture: "SCMP_ARCH_AARCH64", subArchitectures: ["SCMP_ARCH_ARM"] },
    ],
    syscalls: [
      { names: ALLOWED.trim().split(/\s+/), action: ALLOW, args: [] },
      { names: TRACING, action: ALLOW, args: [], includes: { minKernel: TRACING_SINCE } },
      ...FAMILIES.map((family) => equal("socket", family)),
      ...PERSONALITIES.map((personality) => equal("personality", personality)),
      {
        names: ["clone"],
        action: ALLOW,
        args: [{ index: 0, value: NAMESPACES, valueTwo: 0, op: "SCMP_CMP_MASKED_EQ" }],
      },
      { names: UNKNOWN, action: REFUSE, errnoRet: ENOSYS, args: [] },
    ],
  });
}

/**
 * Why a container of this engine cannot have the filter, or null. An operator's own filter is left as it is.
 *
 * @param info what the engine says of itself
 */
export function seccompObstacle(info: unknown): string | null {
  // What is looked at is checked here; the library's types know no such fields.
  const { SecurityOptions, ServerVersion, Architecture } = info as Partial<Record<string, unknown>>;
  const options = Array.isArray(SecurityOptions) ? SecurityOptions.map(String) : [];
  const seccomp = options.find((option) => option.startsWith("name=seccomp"));
  if (seccomp === undefined) return "the engine filters no system calls";
  if (!/^name=seccomp(?:,profile=(?:default|builtin))?$/.test(seccomp))
    return "the engine has a filter of its own";
  if (!/^(?:x86_64|amd64|aarch64|arm64)$/.test(String(Architecture)))
    return `no filter is known for ${Architecture}`;
  const version = /^(\d+)\.(\d+)(?:\.(\d+))?/
    .exec(String(ServerVersion))
    ?.slice(1)
    .map((part) => Number(part ?? 0));
  const older = ENGINE_SINCE.map((part, index) => (version?.[index] ?? 0) - part).find(
    (difference) => difference !== 0,
  );
  return version === undefined || (older ?? 0) < 0
    ? `version ${ServerVersion} of the engine takes none`
    : null;
}
