//! The consensus core of a member: `raft-rs` with the rules that make it safe to use, as a state machine without I/O.
//!
//! The contract, in the order the shell calls it:
//! 1. Inputs: [`Member::tick`], [`Member::propose`], [`Member::step`], [`Member::read_index`].
//! 2. While [`Member::has_work`]: take [`Member::work`]; install its `snapshot`; append `entries` and `hard_state` to the log; send
//!    `messages` at once; when the log is durable call [`Member::persisted`] with the work's number and send its
//!    `persisted_messages`. Several pieces of work may wait for the disk at a time, but only in order.
//! 3. Apply `committed` in order and report with [`Member::applied`]; a committed configuration change is handed to
//!    [`Member::apply_conf_change`] first; a removal waits for the disk before that ([`Backlog`]).
//!
//! 4. A leader whose follower lags behind the entries in memory asks with [`Member::wants_snapshot`] for a snapshot to offer. The
//!    snapshot itself travels outside of this crate, and [`Member::report_snapshot`] tells how that ended.
//! 5. A follower that is far behind, but not that far, is sent the missing entries a little at a time: [`Member::send_lagging`].
//! 6. When [`Member::proof`] returns a proof (after [`Member::step`] has failed with [`Error::LogLost`]) the member ends at once, and
//!    the shell makes sure that it is never started on these files again.
//!
//! # What is relied on of raft-rs
//!
//! Its version is pinned, because these are not part of its interface. For another version this list must be checked, and its tests pass.
//!
//! | raft-rs 0.7.0 | relied on for | tested by |
//! |---|---|---|
//! | hands out as committed only what is persisted here | a checkpoint is never ahead of the own log | `raft_rs::what_is_committed_elsewhere_waits_for_the_own_disk` |
//! | wants a sync for entries, term and vote, not for a commit index | puts of followers cost one sync | `raft_rs::only_entries_terms_and_votes_need_a_sync` |
//! | lets a leader send at once, everyone else when the log is durable | acknowledgements and votes | `raft_rs::followers_answer_once_their_log_is_durable` |
//! | a persisted number covers those before it | several pieces of work on their way | `raft_rs::a_number_covers_those_before_it` |
//! | heartbeats name the lower one of the commit index and what the follower acknowledged in this term | [`Proof::Lost`], [`Proof::Replaced`] | `raft_rs::a_heartbeat_names_nothing_that_was_not_acknowledged_in_its_term` |
//! | a leader ignores heartbeats and appends of its own term | nobody's word ends a leader | `lost::what_anybody_else_says_proves_nothing` |
//! | the term of an entry outside of the log reads as 0 | [`Proof::Contradicted`] | `lost::a_log_that_contradicts_what_is_committed_here_is_a_proof` |
//! | `commit_to` beyond the log, and appends that contradict it, end the process | checks in `step.rs` before it | `hostile::each_impossible_field_is_named` |
//! | asserts that a candidate's log is durable | `tick`, `campaign` and late votes wait for the disk | `hostile::votes_that_were_not_asked_for_elect_nobody` |
//! | a rejection may move a follower's next index below what it holds | `settle_probe` keeps it | `hostile::the_next_index_stays_behind_the_matched_one` |
//! | decodes proposed configuration changes | `convert.rs` hides them in `context`, which it carries along untouched | `hostile::raft_rs_never_decodes_what_peers_propose` |
//! | `set_randomized_election_timeout` holds until the next change of term, role or leader | a seed decides a run | `cluster::the_same_seeds_elect_the_same_leader` |
//! | asks a storage that is not ready again (`LogTemporarilyUnavailable`, `SnapshotTemporarilyUnavailable`) | the pace of those far behind, offers of snapshots | `lagging`, `raft_rs::a_snapshot_that_is_not_there_yet_is_asked_for_again` |
//! | who is no voter of its own configuration never campaigns, whatever the time or a leader says | observers (`observe.rs`), learners, members that were removed | `raft_rs::who_is_no_voter_never_campaigns`, `observer::it_applies_what_it_is_sent_and_acknowledges_nothing` |
//! | answers a request for a vote, if at all, with the only new message; reads neither index nor log term of answers | refusals name the refuser's log, so that who has less in it waits | `cluster::a_candidate_that_lacks_entries_is_told_so`, `cluster::a_member_that_was_refused_stands_after_the_others` |
//! | votes carry commit index and its term, and commit by it | the last of two learns of the other's removal | `raft_rs::a_vote_tells_what_is_committed` |
//!
//! Time is counted in ticks, randomness comes from the seed, and sockets, disks and threads belong to the caller.

mod backlog;
mod bootstrap;
mod bounds;
mod chunked;
mod cluster;
mod config;
mod convert;
mod core;
mod election;
mod error;
mod identity;
mod lagging;
mod log;
mod observe;
mod outbox;
mod proof;
mod propose;
mod reads;
mod removals;
mod status;
mod step;
mod work;

pub use backlog::{Backlog, Piece, is_to_last};
pub use bootstrap::{Bootstrap, bootstrap};
pub use cluster::{Mode, Progress};
pub use config::{Config, Restored};
pub use core::Member;
pub use error::Error;
pub use identity::{cluster_id, member_id};
pub use observe::{Stretch, TAIL_MAX};
pub use proof::Proof;
pub use status::{Role, Status};
pub use step::Refusal;
pub use work::Work;
