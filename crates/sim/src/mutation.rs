//! Known mistakes that a member can be told to make, to prove that the simulator finds them.

use replica::Mistake;
use std::fmt;

/// A mistake that a programmer could make in the code that ships, or in the code around it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// A mistake in the replica: in the code that ships, behind a method that only the simulator overrides.
    Replica(Mistake),
    /// A mistake at the start: reuses the read contexts of the last start.
    ReusesReadContext,
    /// A mistake in the threads around the replica: a leader's writes are answered as soon as they are in its log.
    AcknowledgesBeforeCommit,
    /// A mistake in the threads around the replica: a member that is followed answers questions for a read index at once.
    AnswersObserversAtOnce,
    /// The same of a sole member, which answers its own clients' reads at once: what it has noted as applied is the end of the last batch.
    AnswersObserversAtOnceAlone,
    /// A mistake in the threads around the replica: observers are sent what is in the log, committed or not.
    SendsObserversUncommitted,
    /// A mistake in the store: in the code that ships, in a build with the feature `mistakes`.
    #[cfg(feature = "mistakes")]
    Store(store::Mistake),
    /// A mistake in the Raft log, likewise.
    #[cfg(feature = "mistakes")]
    Wal(wal::Mistake),
}

/// The mistakes that every build of the simulator knows.
const ALWAYS: [Mutation; 23] = [
    Mutation::Replica(Mistake::AcknowledgesBeforeSync),
    Mutation::Replica(Mistake::AcknowledgesAloneBeforeSync),
    Mutation::Replica(Mistake::VotesBeforeDurable),
    Mutation::Replica(Mistake::ForgetsVote),
    Mutation::Replica(Mistake::ReadsWithoutIndex),
    Mutation::Replica(Mistake::LeaderReadsAlone),
    Mutation::ReusesReadContext,
    Mutation::Replica(Mistake::ReadsBeforeApplied),
    Mutation::Replica(Mistake::AppliesTwice),
    Mutation::Replica(Mistake::SkipsSnapshotMembers),
    Mutation::AcknowledgesBeforeCommit,
    Mutation::Replica(Mistake::SkipsChangeRules),
    Mutation::Replica(Mistake::SkipsConfChange),
    Mutation::Replica(Mistake::ForgetsRemovals),
    Mutation::Replica(Mistake::TellsRemovalsEarly),
    Mutation::Replica(Mistake::ForgetsRenewals),
    Mutation::Replica(Mistake::ExpiresForNextLeader),
    Mutation::Replica(Mistake::ReadsJoinEarlierQuestion),
    Mutation::Replica(Mistake::UrgentInAnyTerm),
    Mutation::Replica(Mistake::EndsLeasesEarly),
    Mutation::AnswersObserversAtOnce,
    Mutation::AnswersObserversAtOnceAlone,
    Mutation::SendsObserversUncommitted,
];

impl Mutation {
    /// The mistakes that every build of the simulator knows.
    pub fn always() -> [Mutation; 23] {
        ALWAYS
    }

    /// All mistakes of this build.
    pub fn all() -> Vec<Mutation> {
        let all = ALWAYS.to_vec();
        #[cfg(feature = "mistakes")]
        let all = {
            let store = store::Mistake::ALL.iter().map(|mistake| Mutation::Store(*mistake));
            let wal = wal::Mistake::ALL.iter().map(|mistake| Mutation::Wal(*mistake));
            all.into_iter().chain(store).chain(wal).collect()
        };
        all
    }

    /// The crate that makes it.
    pub fn place(self) -> &'static str {
        match self {
            Mutation::Replica(_) => "replica",
            Mutation::ReusesReadContext
            | Mutation::AcknowledgesBeforeCommit
            | Mutation::AnswersObserversAtOnce
            | Mutation::AnswersObserversAtOnceAlone
            | Mutation::SendsObserversUncommitted => "around replica",
            #[cfg(feature = "mistakes")]
            Mutation::Store(_) => "store",
            #[cfg(feature = "mistakes")]
            Mutation::Wal(_) => "wal",
        }
    }

    /// Whether only a run with observers can find it.
    pub fn is_about_observers(self) -> bool {
        matches!(
            self,
            Mutation::AnswersObserversAtOnce
                | Mutation::AnswersObserversAtOnceAlone
                | Mutation::SendsObserversUncommitted
        )
    }

    /// The issue of etcd that is about this mistake, if it is one that etcd had.
    pub fn known_as(self) -> Option<u32> {
        let issue = match self {
            Mutation::Replica(Mistake::AcknowledgesAloneBeforeSync) => 14370,
            Mutation::Replica(Mistake::LeaderReadsAlone) => 20418,
            Mutation::Replica(Mistake::ExpiresForNextLeader) => 15247,
            #[cfg(feature = "mistakes")]
            Mutation::Store(mistake) => match mistake {
                store::Mistake::CheckpointNamesNextEntry => 13766,
                store::Mistake::CheckpointForgetsUsers => 14571,
                store::Mistake::RemovesListedSegments => 14685,
                store::Mistake::ProgressBeforeEvents => 15220,
                store::Mistake::StarvedStreamGoesBack => 15271,
                store::Mistake::TellsTransactionsTwice => 17247,
                store::Mistake::ForgetsStarvedEvents => 17529,
                store::Mistake::RevisionFromKeys => 17780,
                store::Mistake::CompactsDeletes => 18089,
                store::Mistake::ReadsCompactedInTxn => 18667,
                store::Mistake::WatchMissesDeleteAtCompaction => 19179,
                store::Mistake::FutureWatchGetsProgress | store::Mistake::FutureWatchGetsOldEvents => 20221,
                _ => return None,
            },
            _ => return None,
        };
        Some(issue)
    }

    /// Has the crates below make this mistake, or none, on this thread.
    pub(crate) fn plant(planted: Option<Mutation>) {
        #[cfg(feature = "mistakes")]
        {
            store::Mistake::plant(match planted {
                Some(Mutation::Store(mistake)) => Some(mistake),
                _ => None,
            });
            wal::Mistake::plant(match planted {
                Some(Mutation::Wal(mistake)) => Some(mistake),
                _ => None,
            });
        }
        let _ = planted;
    }
}

/// The name in `--mutation`.
impl fmt::Debug for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mutation::Replica(mistake) => mistake.fmt(f),
            Mutation::ReusesReadContext => f.write_str("ReusesReadContext"),
            Mutation::AcknowledgesBeforeCommit => f.write_str("AcknowledgesBeforeCommit"),
            Mutation::AnswersObserversAtOnce => f.write_str("AnswersObserversAtOnce"),
            Mutation::AnswersObserversAtOnceAlone => f.write_str("AnswersObserversAtOnceAlone"),
            Mutation::SendsObserversUncommitted => f.write_str("SendsObserversUncommitted"),
            #[cfg(feature = "mistakes")]
            Mutation::Store(mistake) => mistake.fmt(f),
            #[cfg(feature = "mistakes")]
            Mutation::Wal(mistake) => mistake.fmt(f),
        }
    }
}
