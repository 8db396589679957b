/** Every number that bounds work, with its unit and why it has that value. */
export const limits = {
  /** Foreground `terminal` call without a timeout of its own, milliseconds. Long enough for a test run. */
  terminalTimeoutMs: 180_000,
  /** Output of a `terminal` call that is kept as text, bytes; what is longer is readable whole by its id. */
  terminalCaptureBytes: 40_000,
  /** Longest foreground `terminal` call, milliseconds; longer work belongs in the background. */
  terminalMaxTimeoutMs: 600_000,
  /** A configuration file, bytes: what is larger was named by mistake. */
  configMaxBytes: 1024 * 1024,
  /** An MCP call without progress returns what it has after this, milliseconds: clients give up at 60 s. */
  mcpYieldMs: 45_000,
  /** One message of an MCP client, bytes: a write_file of the largest file with every byte escaped still fits. */
  mcpMessageMaxBytes: 128 * 1024 * 1024,
  /** Answers that an MCP client still gets after it closed its side, milliseconds; clients kill after 2 to 4 s. */
  mcpDrainMs: 1_000,
  /** Shortest time between two progress messages of one MCP call, milliseconds. */
  mcpProgressEveryMs: 250,
  /** A silent MCP call shows that it lives this often, milliseconds; clients give up at 60 s of silence. */
  mcpHeartbeatMs: 10_000,
  /** A session over HTTP that nobody has used or listened to for this long ends, milliseconds. */
  mcpSessionIdleMs: 3_600_000,
  /** Cleaning up after a signal or the end of a command, milliseconds; then we leave with what is left named. */
  shutdownMs: 12_000,

  /** Captured output kept at the head of a result, bytes. */
  captureHeadBytes: 512 * 1024,
  /** Captured output kept at the tail of a result, bytes; errors come last, so it is the larger part. */
  captureTailBytes: 1024 * 1024,
  /** Full output of one command kept in its spill file, bytes; the rest is counted and dropped. */
  spillMaxBytes: 5 * 1024 * 1024 * 1024,
  /** Spill files older than this are removed at the next start, milliseconds. */
  spillMaxAgeMs: 7 * 24 * 3600_000,
  /** Unread output held between a stream and its consumer before the source is paused, bytes. */
  streamHighWaterBytes: 1024 * 1024,

  /** Standard input of one command, bytes. */
  stdinMaxBytes: 50 * 1024 * 1024,
  /** One command or script, bytes. */
  commandMaxBytes: 16 * 1024 * 1024,
  /** One exported variable that external programs can still be started with: Linux MAX_ARG_STRLEN, bytes. */
  envEntryMaxBytes: 131_071,

  /** Opening a shell in an environment, milliseconds. */
  openTimeoutMs: 30_000,
  /** Reading the login environment once at start, milliseconds; slow rc files are cut off with a note. */
  loginTimeoutMs: 5_000,
  /** TERM to KILL when a command is ended, milliseconds. */
  killGraceMs: 1_000,
  /** KILL to giving up and reporting survivors, milliseconds. */
  killVerifyMs: 2_000,
  /** Time for a dying command's last bytes to arrive, milliseconds. */
  drainMs: 80,
  /** Spare shells kept open per environment, so that a call never waits for one. */
  spareShells: 1,
  /** Shells in use at once per environment; further calls wait. SSH servers allow 10 channels by default. */
  maxShells: 64,

  /** Background processes that run at once per environment. */
  maxProcesses: 256,
  /** Record and log of an ended process are kept this long, milliseconds. */
  processRetentionMs: 30 * 60_000,
  /** A background process's log keeps its first so many bytes; what comes later is dropped within about a second. */
  processLogMaxBytes: 256 * 1024 * 1024,
  /** A chunk written to a process that nobody reads is given up after this, milliseconds. */
  stdinStallMs: 10_000,

  /** One health probe, milliseconds. */
  probeTimeoutMs: 3_000,
  /** An availability answer is fresh for this long, milliseconds. */
  availabilityTtlMs: 30_000,
  /** The last success covers failures for this long, milliseconds. */
  availabilityGraceMs: 60_000,
  /** A failure without an earlier success is probed again after this, milliseconds. */
  availabilityRetryMs: 2_500,

  /** An environment whose start failed is started again after this while somebody asks for its tools, milliseconds. */
  startRetryMs: 30_000,

  /** Loading one tool module, milliseconds; one that never finishes is reported and left out. */
  toolModuleTimeoutMs: 10_000,
  /** Description of a tool, characters: providers cut or refuse longer ones. */
  toolDescriptionMaxChars: 2_000,
  /** An aborted handler has this long to answer with what it has, milliseconds: TERM, KILL and the check on both. */
  abortGraceMs: 5_000,
  /** A model-facing result, bytes of UTF-8; about 12,000 tokens. */
  resultMaxBytes: 50_000,
  /** A model-facing result, lines. */
  resultMaxLines: 2_000,
  /** One line of a model-facing file view, characters. */
  lineMaxChars: 2_000,

  /** Lines that read_file gives when no limit is named. */
  readFileDefaultLines: 2_000,
  /** A file that read_file and patch take into memory whole, bytes; larger ones are read by range. */
  fileWholeMaxBytes: 16 * 1024 * 1024,
  /** A file that is hashed on a ranged read, bytes. */
  fileHashMaxBytes: 256 * 1024 * 1024,
  /** Special files must answer within this, milliseconds. */
  fileOpTimeoutMs: 60_000,
  /** Entries of one folder that is mirrored or checkpointed. */
  treeMaxEntries: 400_000,
  /** A tar header's own records, names above all, bytes. */
  tarRecordMaxBytes: 1024 * 1024,
  /** Contents sent into an environment in one request, bytes. */
  treeBatchBytes: 8 * 1024 * 1024,
  /** Scanning, hashing or moving one folder, milliseconds. */
  treeTimeoutMs: 30 * 60_000,

  /** Between two runs of a mirror that goes on, milliseconds: what is saved here is there before it is asked for. */
  syncWatchMs: 1_000,

  /** A file that a checkpoint holds, bytes; larger ones are listed as left out. */
  checkpointFileMaxBytes: 32 * 1024 * 1024,
  /** Looking at and storing a tree before one command, milliseconds; what is not done by then is listed as left out. */
  checkpointBudgetMs: 5_000,
  /** After a tree passed its time budget, later commands go without a checkpoint of it for this long, milliseconds. */
  checkpointBackOffMs: 60_000,
  /** Contents of all checkpoints, bytes; the oldest go first. */
  checkpointStoreMaxBytes: 2 * 1024 * 1024 * 1024,
  /** Checkpoints older than this are removed, milliseconds. */
  checkpointMaxAgeMs: 30 * 24 * 3600_000,
  /** Checkpoints kept of one folder. */
  checkpointMaxCount: 1_000,
  /** Changed contents that are fetched without asking for their hashes first, bytes. */
  checkpointFetchBytes: 4 * 1024 * 1024,

  /** search_files results without a limit of their own. */
  searchDefaultLimit: 50,
  /** One matched line in a search result, characters. */
  searchLineMaxChars: 500,
  /** One search, milliseconds. */
  searchTimeoutMs: 60_000,

  /** Engine requests of the docker backend other than pulls, waits and streams, milliseconds. */
  dockerRequestTimeoutMs: 30_000,
  /** `stop` of a container before it is killed, seconds. */
  dockerStopGraceSeconds: 1,
  /** Processes in a container. */
  dockerPidsLimit: 512,
  /** Memory of a container without a limit of its own, bytes; enough for a build, not for the host's death. */
  dockerMemoryBytes: 4 * 1024 * 1024 * 1024,
  /** /dev/shm of a container, bytes; the engine's 64 MiB break browsers. */
  dockerShmBytes: 1024 * 1024 * 1024,
  /** A pull that brings nothing new for this long has failed, milliseconds. */
  dockerPullStallMs: 120_000,
  /** End of a program's stream to the engine knowing its exit code, milliseconds. */
  dockerExitCodeMs: 5_000,
  /** A write to a paused container waits this long for its unpause, milliseconds. */
  dockerPausedMs: 2_000,
  /** Streams opened ahead in each container of a warm pool. */
  dockerWarmStreams: 3,

  /** One hop's TCP connection, milliseconds; `ConnectTimeout` in ssh_config may set another. */
  sshConnectTimeoutMs: 10_000,
  /** A connection's first words, and then the agreement on keys, milliseconds each; `ConnectTimeout` may set another. */
  sshHandshakeTimeoutMs: 10_000,
  /** Authentication, milliseconds; an agent may ask its user. */
  sshAuthenticationTimeoutMs: 30_000,
  /** A connection without traffic is asked for a sign of life this often, milliseconds. */
  sshKeepaliveMs: 5_000,
  /** Unanswered signs of life before a connection counts as lost: at most 25 s in all. */
  sshKeepaliveMisses: 4,
  /** A server's answer to the wish for a channel, milliseconds. */
  sshChannelTimeoutMs: 15_000,
  /** Connections of one environment; more than one when the server allows few sessions on each. */
  sshMaxConnections: 16,
  /** Sessions on one connection: what OpenSSH allows by default. Further ones get a connection of their own. */
  sshChannelsPerConnection: 10,
  /** A further connection without a channel is kept this long, milliseconds. */
  sshIdleConnectionMs: 30_000,
  /** A server that refused a session is asked for as many again after this, milliseconds. */
  sshSessionRetryMs: 5_000,
  /** Trying to come back after a loss, milliseconds. */
  sshReconnectMs: 20_000,
  /** A request's head, a SOCKS5 greeting or a ClientHello arrives within this, milliseconds. */
  egressHeadMs: 10_000,
  /** Resolving a name and reaching its address, milliseconds. */
  egressConnectMs: 15_000,
  /** A connection through the proxy on which nothing moves is closed after this, milliseconds. */
  egressIdleMs: 10 * 60_000,
  /** Connections of one environment through its proxy at once. */
  egressMaxConnections: 512,
  /** A ClientHello, bytes; post-quantum key shares make real ones about 2 KiB. */
  egressHelloMaxBytes: 64 * 1024,
  /** Decisions of the proxy that are kept for lists; all are counted. */
  egressDecisionsKept: 500,

  /**
   * A sandbox server's first word on a command, milliseconds; then the command's end is unknown. After as long a silence
   * later on it is asked whether the command still runs.
   */
  vercelAnswerMs: 30_000,
  /** One line of a sandbox server's stream, bytes; a longer one is no line of such a server. */
  vercelLineMaxBytes: 16 * 1024 * 1024,
  /** Life of a remote session, milliseconds; it is prolonged while the environment is in use. */
  vercelTimeoutMs: 10 * 60_000,

  /** JSON body of a request to `moor serve`, bytes: a command of the largest size with every byte escaped in two. */
  serveBodyMaxBytes: 40 * 1024 * 1024,
  /** Packed files of one request to `moor serve`, bytes. */
  serveArchiveMaxBytes: 64 * 1024 * 1024,
  /** What packed files may unpack to, bytes: a small archive must not fill the memory. */
  serveUnpackedMaxBytes: 256 * 1024 * 1024,
  /** Files in one request to `moor serve`. */
  serveArchiveMaxFiles: 10_000,
  /** Sandboxes that `moor serve` runs at once. */
  serveMaxSandboxes: 64,
  /** Commands of one served session that run at once. */
  serveMaxCommands: 256,
  /** Ended commands of a served session whose logs can still be asked for. */
  serveKeptCommands: 64,
  /**
   * A client hears of its command after this at the latest, milliseconds, however slow the start is: well before it
   * takes the silence for a loss.
   */
  serveFirstWordMs: 3_000,
  /** Log of one served command that is kept for replay, bytes; the oldest part goes first. */
  serveLogMaxBytes: 8 * 1024 * 1024,
  /** A served session that names no time of its own ends after this, milliseconds. */
  serveTimeoutMs: 5 * 60_000,
  /** Longest life of a served session, milliseconds. */
  serveMaxTimeoutMs: 24 * 3600_000,
  /** Idle time after which clients are told to give a served connection up, milliseconds. */
  serveIdleToldMs: 5_000,
  /**
   * Idle time after which a served connection is closed, milliseconds: long after the one that clients are told of, since
   * a command that crosses the close on its way cannot be told from one that ran.
   */
  serveIdleMs: 60_000,
  /** Entries on one page of a served list. */
  servePageMax: 100,
  /** One snapshot of a served workspace, bytes. */
  serveSnapshotMaxBytes: 4 * 1024 * 1024 * 1024,
  /** A piece of a snapshot on its way back into an environment, bytes. */
  serveRestorePieceBytes: 16 * 1024 * 1024,
} as const;
