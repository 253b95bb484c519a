//! Every bound of the server in one place, units last in the name.

/// Default of `--max-request-bytes`: the largest marshalled Raft request.
pub const REQUEST_BYTES_MAX: usize = 1_572_864;
/// What `--max-request-bytes` may be at most, and so the longest key: the index has several keys in one block, with places of 32 bits.
pub const REQUEST_BYTES_LIMIT: usize = 512 << 20;
/// What a gRPC message may hold beyond `--max-request-bytes`.
pub const GRPC_OVERHEAD_BYTES: usize = 512 * 1024;
/// Default of `--max-txn-ops`.
pub const TXN_OPS_MAX: usize = 128;
/// Transactions inside each other; each level counts as an operation of the one around it, so with etcd's default of 128
/// operations this is never reached.
pub const TXN_NESTING_MAX: usize = 256;
/// Conditions and operations of a transaction with all that are nested in it, unless `--max-txn-ops` allows more in one list.
pub const TXN_TREE_OPS_MAX: usize = 10_000;
/// Pairs in the answer to one transaction or deletion, which is built in memory as a whole.
pub const TXN_ANSWER_BYTES_MAX: usize = 512 << 20;
/// Keys that the conditions and operations of one transaction that writes may look at: every member does so before it applies anything
/// else.
pub const TXN_KEYS_MAX: u64 = 10_000_000;
/// The same for all requests under way from one member: thousands may be. Half of it for one host; hosts with one request each may have
/// twice as many.
pub const TXN_KEYS_TOGETHER_MAX: u64 = 2 * TXN_KEYS_MAX;
/// Requests that look at no more keys than this do not count among those.
pub const TXN_KEYS_FREE: u64 = 1_000;
/// Peer URLs that a request may give a member: every member compares them with those of all others before it applies anything else.
pub const PEER_URLS_MAX: usize = 64;
/// The bytes of all of them.
pub const PEER_URLS_BYTES_MAX: usize = 16 << 10;
/// Default of `--quota-backend-bytes`.
pub const QUOTA_BYTES_DEFAULT: i64 = 2 << 30;
/// Within this much of the quota requests count against it while they are under way.
pub const QUOTA_NEAR_BYTES: u64 = 1 << 30;
/// What a deletion may write without a look at the disk, as long as that is not low: the reserve has room for many of them.
pub const DELETE_BYTES_FREE: u64 = 64 << 10;
/// The same for all such deletions that are under way.
pub const DELETES_BYTES_FREE: u64 = 1 << 20;
/// Committed but unapplied entries before writes are refused.
pub const APPLY_GAP_MAX: u64 = 5_000;
/// The longest lease, in seconds.
pub const LEASE_TTL_SECONDS_MAX: i64 = 9_000_000_000;
/// Reads, writes and ends of leases that may wait, each.
pub const PROPOSAL_QUEUE_MAX: usize = 65_536;
/// Bytes of proposals that may wait for the consensus thread.
pub const PROPOSAL_QUEUE_BYTES_MAX: usize = 256 << 20;
/// Store operations applied under one hold of the index write lock.
pub const APPLY_STRIDE_OPS: usize = 64;
/// Bytes of changes after which a stride ends, with one entry more: its changes gather in a buffer, and one that grows further costs more
/// than the writing.
pub const APPLY_STRIDE_BYTES: u64 = 2 << 20;
/// Bytes of pairs in answers, and one answer more, that are built before they are given to those who wait for them.
pub const APPLY_STRIDE_ANSWER_BYTES: usize = 16 << 20;
/// Bytes of keys installed under one hold of the index write lock, and one key more.
pub const INSTALL_STRIDE_BYTES: usize = 256 * 1024;
/// Index entries visited under one hold of the index read lock.
pub const READ_STRIDE_KEYS: usize = 256;
/// Bytes a request thread handles for one connection before it turns to the others.
pub const TURN_BYTES_MAX: usize = 64 * 1024;
/// Sorted or filtered ranges over more keys than this go to the slow pool.
pub const INLINE_SORT_KEYS_MAX: usize = 10_000;
/// Bytes one stream may have queued towards a client before its producer must wait.
pub const STREAM_SEND_BYTES_MAX: usize = 1 << 20;
/// Of them those beyond the window that its client has opened for the stream.
pub const STREAM_AHEAD_BYTES_MAX: usize = 64 << 10;
/// Responses one watch stream may have queued before its watchers read the log from their cursors instead.
pub const WATCH_QUEUE_EVENTS_MAX: usize = 8_192;
/// Events, counted once for each distinct request of a stream, that all watch streams together may have queued, and
/// [`WATCH_SHORT_QUEUES_EVENTS_MAX`] on top. Where there are more, long queues are given up, the one that has been long for the longest
/// time first. An event takes 100 to 300 bytes, and up to 1 KB where its revision has others.
pub const WATCH_ALL_QUEUES_EVENTS_MAX: usize = 1 << 20;
/// Queues of up to this many events are short, and never given up for the sake of others: two strides of the applier.
pub const WATCH_LONG_QUEUE_EVENTS: usize = 128;
/// Events of all short queues. With more than 8,192 streams a queue is short with fewer events than [`WATCH_LONG_QUEUE_EVENTS`]; from
/// 33,000 on, a stride that all of them want has some of them read the log.
pub const WATCH_SHORT_QUEUES_EVENTS_MAX: usize = 1 << 20;
/// Bytes of events that one watch stream builds before it sends them, with those of one watcher more: many watches of overlapping
/// ranges must not multiply a large revision in memory.
pub const WATCH_DELIVERY_BYTES_MAX: usize = 16 << 20;
/// Bytes of events that one watch stream builds without asking the budget. Large values are not built: they are sent from where they
/// are stored.
pub const WATCH_BYTES_FREE: usize = 64 * 1024;
/// Pairs of an event and a watch that wants it, of one revision, that the applier looks at. Streams look for the others themselves.
pub const WATCH_ROUTE_HITS_MAX: usize = 1 << 20;
/// Default of `--max-watches`: watches of all clients.
pub const WATCHES_MAX: u64 = 1_000_000;
/// Default of `--max-watches-per-connection`.
pub const CONNECTION_WATCHES_MAX: u64 = 250_000;
/// Revisions one catch-up response of a watch covers at most.
pub const WATCH_CATCH_UP_REVISIONS_MAX: i64 = 1_000;
/// Header list a client may send, in bytes (RFC 9113 section 6.5.2 counting).
pub const HEADER_LIST_BYTES_MAX: u32 = 64 * 1024;
/// Concurrent streams on one connection. etcd allows 2^32-1; memory must be bounded, and clients queue above it.
pub const CONCURRENT_STREAMS_MAX: u32 = 100_000;
/// Client snapshots sent at once: each keeps the segments it was planned on.
pub const SNAPSHOTS_MAX: usize = 8;
/// The largest message sent, as gRPC has it.
pub const SEND_BYTES_MAX: usize = i32::MAX as usize;
/// Expired leases whose ends are under way at once.
pub const LEASE_ENDS_MAX: usize = 200;
/// Those of them that begin at once, every two milliseconds: requests that come meanwhile wait for these.
pub const LEASE_ENDS_AT_ONCE: usize = 100;
/// Leases that a new leader lets expire within a second.
pub const LEASE_EXPIRIES_PER_SECOND_MAX: usize = 20_000;
/// Leases that a new leader takes over at a time, in about a millisecond: no other work of consensus is done meanwhile.
pub const LEASE_TAKEOVER_PIECE_MAX: usize = 4_096;
/// The checkpoint of a snapshot that another member sends.
pub const SNAPSHOT_CHECKPOINT_BYTES_MAX: usize = 256 << 20;
/// Segments of such a snapshot.
pub const SNAPSHOT_SEGMENTS_MAX: usize = 1 << 16;
/// Members of such a snapshot.
pub const SNAPSHOT_MEMBERS_MAX: usize = 10_000;
/// Alarms of such a snapshot.
pub const SNAPSHOT_ALARMS_MAX: usize = 1_000_000;
/// Leases that its checkpoint lists when it is sent. More of them are sent as a table beside it, which earlier versions do not know.
pub const SNAPSHOT_LISTED_LEASES: usize = 10_000;
/// Leases that are taken in a checkpoint: earlier versions list all of them.
pub const SNAPSHOT_LISTED_LEASES_MAX: usize = 8 << 20;
/// Leases that are taken in a table: what a quota of 8 GiB has room for, in as many bytes of memory.
pub const SNAPSHOT_LEASES_MAX: usize = 128 << 20;
/// Alarms of IDs that no member has, those under way included, before further ones are refused.
pub const NON_MEMBER_ALARMS_MAX: u64 = 100;
/// Bytes of a segment read for another member at a time.
pub const SNAPSHOT_READ_BYTES_MAX: usize = 1 << 20;
/// Keep-alives of one stream that may wait for the leader's answer.
pub const KEEP_ALIVES_WAITING_MAX: usize = 65_536;
/// Bytes of the name of a user or a role: what an etcd backend file, and so a client's snapshot, can hold as a key.
pub const AUTH_NAME_BYTES_MAX: usize = 32_768;
/// A role with its permissions, as it is stored. A user's are merged over the roles.
pub const ROLE_BYTES_MAX: usize = 16 << 20;
/// All users and roles, as they are stored: a quarter of what a checkpoint that is sent may have.
pub const USERS_BYTES_MAX: u64 = 64 << 20;
/// Messages of a stream held back until its token is known.
pub const EARLY_MESSAGES_MAX: usize = 16;
/// Changes of users and roles that may wait.
pub const AUTH_QUEUE_MAX: usize = 4_096;
/// Default of `--max-held-bytes`: answers and parts of requests that clients have a member hold.
pub const BUDGET_BYTES_DEFAULT: u64 = 512 << 20;
/// Answers that may wait for others to be taken.
pub const BUDGET_QUEUE_MAX: usize = 4_096;
/// Answers and requests up to this size are bounded by their number alone.
pub const BUDGET_FREE_BYTES: usize = 4 * 1024;
/// Memory for the places of an answer's pairs that may be used to find out how much it takes: enough for all that a request thread reads.
pub const PLACES_FREE_BYTES: usize = 512 * 1024;
/// Jobs that may wait for a thread of the slow pool.
pub const SLOW_QUEUE_MAX: usize = 1_024;
/// Short work after a read index or bcrypt that may wait for a thread. Beyond it the thread that has it does it.
pub const SHORT_QUEUE_MAX: usize = 1_024;
/// Questions for the leader that may wait for a thread.
pub const FORWARD_QUEUE_MAX: usize = 1_024;
/// Calls of clients that have taken more than their share, until these are even.
pub const SHARE_QUEUE_MAX: usize = 65_536;
/// Configuration changes that may wait.
pub const CHANGE_QUEUE_MAX: usize = 1_024;
/// Bytes of messages from peers that may wait for the consensus thread; then peers are read no further.
pub const PEER_QUEUE_BYTES_MAX: usize = 64 << 20;
/// Bytes of applied entries kept in memory for followers that lag. Beyond it they are sent a snapshot.
pub const LOG_MEMORY_BYTES_MAX: u64 = 64 << 20;
/// The same while a follower is being sent a snapshot: it will need the entries behind it.
pub const LOG_MEMORY_SENDING_BYTES_MAX: u64 = 256 << 20;
/// Bytes of committed entries that wait for the apply thread before no more are taken in.
pub const APPLY_QUEUE_BYTES_MAX: usize = 256 << 20;
/// Calls that may wait for a lock or an election.
pub const TURNS_WAITING_MAX: usize = 65_536;
