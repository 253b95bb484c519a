//! The error catalogue: what clients match on, in one table.
//!
//! `clientv3` turns a status into its typed error by the exact message, so the texts are etcd's. Where etcd's wire code differs
//! from the one clients document (two errors go out as `Unknown`), the documented one is used: clients match the text.

/// A gRPC status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Code {
    Ok = 0,
    Canceled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl Code {
    /// Every code, in numeric order.
    pub const ALL: [Code; 17] = [
        Code::Ok,
        Code::Canceled,
        Code::Unknown,
        Code::InvalidArgument,
        Code::DeadlineExceeded,
        Code::NotFound,
        Code::AlreadyExists,
        Code::PermissionDenied,
        Code::ResourceExhausted,
        Code::FailedPrecondition,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unimplemented,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
        Code::Unauthenticated,
    ];

    /// The name used in metric labels and in Go's status texts.
    pub fn name(self) -> &'static str {
        match self {
            Code::Ok => "OK",
            Code::Canceled => "Canceled",
            Code::Unknown => "Unknown",
            Code::InvalidArgument => "InvalidArgument",
            Code::DeadlineExceeded => "DeadlineExceeded",
            Code::NotFound => "NotFound",
            Code::AlreadyExists => "AlreadyExists",
            Code::PermissionDenied => "PermissionDenied",
            Code::ResourceExhausted => "ResourceExhausted",
            Code::FailedPrecondition => "FailedPrecondition",
            Code::Aborted => "Aborted",
            Code::OutOfRange => "OutOfRange",
            Code::Unimplemented => "Unimplemented",
            Code::Internal => "Internal",
            Code::Unavailable => "Unavailable",
            Code::DataLoss => "DataLoss",
            Code::Unauthenticated => "Unauthenticated",
        }
    }
}

macro_rules! catalogue {
    ($($(#[$doc:meta])* $name:ident = $code:ident $text:literal;)*) => {
        /// One error of the catalogue.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum Error { $($(#[$doc])* $name,)* }

        impl Error {
            /// The gRPC code the error travels with.
            pub fn code(self) -> Code { match self { $(Error::$name => Code::$code,)* } }
            /// The exact text clients match on.
            pub fn message(self) -> &'static str { match self { $(Error::$name => $text,)* } }
        }
    };
}

catalogue! {
    EmptyKey = InvalidArgument "etcdserver: key is not provided";
    KeyNotFound = InvalidArgument "etcdserver: key not found";
    ValueProvided = InvalidArgument "etcdserver: value is provided";
    LeaseProvided = InvalidArgument "etcdserver: lease is provided";
    TooManyOps = InvalidArgument "etcdserver: too many operations in txn request";
    DuplicateKey = InvalidArgument "etcdserver: duplicate key given in txn request";
    InvalidClientApiVersion = InvalidArgument "etcdserver: invalid client api version";
    InvalidSortOption = InvalidArgument "etcdserver: invalid sort option";
    Compacted = OutOfRange "etcdserver: mvcc: required revision has been compacted";
    FutureRev = OutOfRange "etcdserver: mvcc: required revision is a future revision";
    NoSpace = ResourceExhausted "etcdserver: mvcc: database space exceeded";
    LeaseNotFound = NotFound "etcdserver: requested lease not found";
    LeaseExist = FailedPrecondition "etcdserver: lease already exists";
    LeaseTtlTooLarge = OutOfRange "etcdserver: too large lease TTL";
    WatchCanceled = Canceled "etcdserver: watch canceled";
    MemberExist = FailedPrecondition "etcdserver: member ID already exist";
    PeerUrlExist = FailedPrecondition "etcdserver: Peer URLs already exists";
    MemberNotEnoughStarted = FailedPrecondition "etcdserver: re-configuration failed due to not enough started members";
    MemberBadUrls = InvalidArgument "etcdserver: given member URLs are invalid";
    MemberNotFound = NotFound "etcdserver: member not found";
    MemberNotLearner = FailedPrecondition "etcdserver: can only promote a learner member";
    LearnerNotReady = FailedPrecondition "etcdserver: can only promote a learner member which is in sync with leader";
    TooManyLearners = FailedPrecondition "etcdserver: too many learner members in cluster";
    ClusterIdMismatch = FailedPrecondition "etcdserver: cluster ID mismatch";
    RequestTooLarge = InvalidArgument "etcdserver: request is too large";
    /// Not etcd's, which notes any alarm.
    TooManyAlarms = ResourceExhausted "etcdserver: too many alarms of IDs that no member has";
    /// Not etcd's, whose members look at any number of keys.
    TxnTooManyKeys = ResourceExhausted "etcdserver: txn looks at too many keys";
    /// Not etcd's, which builds answers of any size.
    TxnAnswerTooLarge = ResourceExhausted "etcdserver: txn answer is too large";
    TooManyRequests = ResourceExhausted "etcdserver: too many requests";
    RootUserNotExist = FailedPrecondition "etcdserver: root user does not exist";
    RootRoleNotExist = FailedPrecondition "etcdserver: root user does not have root role";
    UserAlreadyExist = FailedPrecondition "etcdserver: user name already exists";
    UserEmpty = InvalidArgument "etcdserver: user name is empty";
    UserNotFound = FailedPrecondition "etcdserver: user name not found";
    RoleAlreadyExist = FailedPrecondition "etcdserver: role name already exists";
    RoleNotFound = FailedPrecondition "etcdserver: role name not found";
    RoleEmpty = InvalidArgument "etcdserver: role name is empty";
    AuthFailed = InvalidArgument "etcdserver: authentication failed, invalid user ID or password";
    /// Not etcd's, which lets anybody guess on.
    TooManyFailures = ResourceExhausted "etcdserver: too many failed authentications, try again later";
    PermissionNotGiven = InvalidArgument "etcdserver: permission not given";
    PermissionDenied = PermissionDenied "etcdserver: permission denied";
    RoleNotGranted = FailedPrecondition "etcdserver: role is not granted to the user";
    PermissionNotGranted = FailedPrecondition "etcdserver: permission is not granted to the role";
    AuthNotEnabled = FailedPrecondition "etcdserver: authentication is not enabled";
    InvalidAuthToken = Unauthenticated "etcdserver: invalid auth token";
    InvalidAuthMgmt = InvalidArgument "etcdserver: invalid auth management";
    AuthOldRevision = InvalidArgument "etcdserver: revision of auth store is old";
    NoLeader = Unavailable "etcdserver: no leader";
    NotLeader = FailedPrecondition "etcdserver: not leader";
    LeaderChanged = Unavailable "etcdserver: leader changed";
    NotCapable = FailedPrecondition "etcdserver: not capable";
    Stopped = Unavailable "etcdserver: server stopped";
    Timeout = Unavailable "etcdserver: request timed out";
    TimeoutDueToLeaderFail = Unavailable "etcdserver: request timed out, possibly due to previous leader failure";
    TimeoutDueToConnectionLost = Unavailable "etcdserver: request timed out, possibly due to connection lost";
    TimeoutWaitAppliedIndex = Unavailable "etcdserver: request timed out, waiting for the applied index took too long";
    /// Not in clients' tables; etcd sends it as unknown.
    TimeoutLeaderTransfer = Unknown "etcdserver: request timed out, leader transfer took too long";
    Unhealthy = Unavailable "etcdserver: unhealthy cluster";
    Corrupt = DataLoss "etcdserver: corrupt cluster";
    NotSupportedForLearner = FailedPrecondition "etcdserver: rpc not supported for learner";
    BadLeaderTransferee = FailedPrecondition "etcdserver: bad leader transferee";
    WrongDowngradeVersionFormat = InvalidArgument "etcdserver: wrong downgrade target version format";
    InvalidDowngradeTargetVersion = InvalidArgument "etcdserver: invalid downgrade target version";
    ClusterVersionUnavailable = FailedPrecondition "etcdserver: cluster version not found during downgrade";
    DowngradeInProcess = FailedPrecondition "etcdserver: cluster has a downgrade job in progress";
    NoInflightDowngrade = FailedPrecondition "etcdserver: no inflight downgrade job";
    RequestCanceled = Canceled "etcdserver: request canceled";
    DeadlineExceeded = DeadlineExceeded "etcdserver: context deadline exceeded";
    /// A keep-alive reached a member that is not sure to be leader. etcd sends the bare Go text.
    NotPrimaryLessor = Unknown "not a primary lessor";
    /// A watch over an empty range, told in `cancel_reason`, never as a status.
    WatchEmptyRange = InvalidArgument "mvcc: watcher range is empty";
    /// A watch id already in use, told in `cancel_reason`.
    WatchDuplicateId = InvalidArgument "mvcc: duplicate watch ID provided on the WatchStream";
    /// RangeStream with a sort order.
    StreamSort = Unimplemented "RangeStream does not support custom sort orders";
    /// RangeStream with revision filters.
    StreamFilter = Unimplemented "RangeStream does not support revision filters";
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Error {}
