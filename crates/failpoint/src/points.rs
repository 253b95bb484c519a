//! The points of a member. `docs/failpoints.md` says where each is and what it stands for.

use crate::Point;

macro_rules! points {
    ($($(#[$doc:meta])* $place:ident = $name:literal;)*) => {
        $($(#[$doc])* #[doc = concat!("`", $name, "`.")] pub static $place: Point = Point::new($name);)*

        /// Every point.
        pub static ALL: &[&Point] = &[$(&$place,)*];
    };
}

// The Raft log and the order of a turn.
points! {
    RAFT_BEFORE_SAVE = "raftBeforeSave";
    RAFT_AFTER_SAVE = "raftAfterSave";
    RAFT_BEFORE_LEADER_SEND = "raftBeforeLeaderSend";
    RAFT_BEFORE_FOLLOWER_SEND = "raftBeforeFollowerSend";
    RAFT_BEFORE_ADVANCE = "raftBeforeAdvance";
    RAFT_BEFORE_RECEIVE = "raftBeforeReceive";
    RAFT_DROP_HEARTBEAT = "raftDropHeartbeat";
    WAL_BEFORE_WRITE = "walBeforeWrite";
    WAL_BEFORE_SYNC = "walBeforeSync";
    WAL_AFTER_SYNC = "walAfterSync";
    WAL_BEFORE_CUT = "walBeforeCut";
    WAL_AFTER_CUT = "walAfterCut";
    // A snapshot between members.
    SNAPSHOT_BEFORE_SEND = "snapshotBeforeSend";
    SNAPSHOT_BEFORE_RECEIVE = "snapshotBeforeReceive";
    SNAP_DB_RENAME_BEFORE_DIR_SYNC = "snapDBRenameBeforeDirSync";
    SNAP_DB_DIR_SYNC_ERROR = "snapDBDirSyncError";
    RAFT_BEFORE_SAVE_SNAP = "raftBeforeSaveSnap";
    RAFT_AFTER_SAVE_SNAP = "raftAfterSaveSnap";
    APPLY_BEFORE_OPEN_SNAPSHOT = "applyBeforeOpenSnapshot";
    APPLY_AFTER_OPEN_SNAPSHOT = "applyAfterOpenSnapshot";
    RAFT_BEFORE_APPLY_SNAP = "raftBeforeApplySnap";
    RAFT_AFTER_APPLY_SNAP = "raftAfterApplySnap";
    /// etcd's spelling.
    RAFT_BEFORE_WAL_SAVE_SNAPSHOT = "raftBeforeWALSaveSnaphot";
    RAFT_AFTER_WAL_RELEASE = "raftAfterWALRelease";
    // Entries into the store.
    BEFORE_APPLY_ONE_ENTRY_NORMAL = "beforeApplyOneEntryNormal";
    BEFORE_APPLY_ONE_CONF_CHANGE = "beforeApplyOneConfChange";
    AFTER_APPLY_ONE_CONF_CHANGE = "afterApplyOneConfChange";
    BEFORE_START_DB_TXN = "beforeStartDBTxn";
    AFTER_START_DB_TXN = "afterStartDBTxn";
    BEFORE_COMMIT = "beforeCommit";
    AFTER_COMMIT = "afterCommit";
    BEFORE_WRITEBACK_BUF = "beforeWritebackBuf";
    AFTER_WRITEBACK_BUF = "afterWritebackBuf";
    // Checkpoints.
    COMMIT_BEFORE_PRE_COMMIT_HOOK = "commitBeforePreCommitHook";
    COMMIT_AFTER_PRE_COMMIT_HOOK = "commitAfterPreCommitHook";
    CHECKPOINT_BEFORE_RENAME = "checkpointBeforeRename";
    CHECKPOINT_AFTER_RENAME = "checkpointAfterRename";
    // Compaction, rewriting segments, defragmenting.
    COMPACT_BEFORE_COMMIT_SCHEDULED_COMPACT = "compactBeforeCommitScheduledCompact";
    COMPACT_AFTER_COMMIT_SCHEDULED_COMPACT = "compactAfterCommitScheduledCompact";
    COMPACT_AFTER_ACQUIRED_BATCH_TX_LOCK = "compactAfterAcquiredBatchTxLock";
    COMPACT_BEFORE_COMMIT_BATCH = "compactBeforeCommitBatch";
    COMPACT_AFTER_COMMIT_BATCH = "compactAfterCommitBatch";
    COMPACT_BEFORE_SET_FINISHED_COMPACT = "compactBeforeSetFinishedCompact";
    COMPACT_AFTER_SET_FINISHED_COMPACT = "compactAfterSetFinishedCompact";
    REWRITE_BEFORE_PLACE = "rewriteBeforePlace";
    REWRITE_BEFORE_REPLACE = "rewriteBeforeReplace";
    REWRITE_AFTER_REPLACE = "rewriteAfterReplace";
    DEFRAG_OPEN_FILE_ERROR = "defragOpenFileError";
    DEFRAGDB_FAIL = "defragdbFail";
    DEFRAG_BEFORE_COPY = "defragBeforeCopy";
    DEFRAG_BEFORE_RENAME = "defragBeforeRename";
    // Leases.
    LEASE_BEFORE_GRANT = "leaseBeforeGrant";
    LEASE_BEFORE_REVOKE = "leaseBeforeRevoke";
    LEASE_BEFORE_EXPIRE = "leaseBeforeExpire";
    BEFORE_CHECKPOINT_IN_LEASE_RENEW = "beforeCheckpointInLeaseRenew";
    BEFORE_SERVE_HTTP_LEASE_RENEW = "beforeServeHTTPLeaseRenew";
    BEFORE_LOOKUP_WHEN_LEASE_TIME_TO_LIVE = "beforeLookupWhenLeaseTimeToLive";
    BEFORE_LOOKUP_WHEN_FORWARD_LEASE_TIME_TO_LIVE = "beforeLookupWhenForwardLeaseTimeToLive";
    // Answers.
    BEFORE_SEND_WATCH_RESPONSE = "beforeSendWatchResponse";
    BEFORE_RANGE_STREAM_CHUNK = "beforeRangeStreamChunk";
    BEFORE_PUBLISHING = "beforePublishing";
}
