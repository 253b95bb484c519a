//! Trimming the log in memory: which entries stay for followers that lag.

use crate::consensus::{Mode, Status};
use crate::replica::Replica;
use crate::{Now, Observed};

impl<C> Replica<C> {
    /// Trims the entries in memory. Some stay for followers that lag, members or observers; one without any needs none. However far followers
    /// lag, the bytes that stay are limited.
    pub(crate) fn trim(&mut self, status: &Status, observed: Observed, now: Now) {
        let is_followed = !status.sole_voter || observed.has_followers;
        let keep = if is_followed { self.options.catchup_entries } else { 0 };
        let is_due = self.raft.log_len() as u64 > keep.saturating_add(self.options.trim_entries);
        // Entries behind a snapshot that is being sent are kept: otherwise the follower would need another snapshot at
        // once.
        let sent = self.outgoing.keep_behind().into_iter().chain(observed.sent).min();
        // A member that has just taken a snapshot still lacks what was written meanwhile.
        let lagging = || match self.options.keeps_for_active {
            true => self.furthest_behind(now),
            false => self.outgoing.taken_lately(now),
        };
        let needed = if is_due { lagging().into_iter().chain(sent).min() } else { sent };
        let bytes_max = match needed {
            Some(_) => self.options.log_sending_bytes_max,
            None => self.options.log_bytes_max,
        };
        if is_due {
            let below = status.applied.saturating_sub(keep);
            self.raft.trim(needed.map_or(below, |needed| below.min(needed)));
        }
        if self.raft.log_bytes() > bytes_max {
            // Trims a little more than necessary, so that this does not happen after each entry.
            self.raft.trim(self.raft.trim_to_fit(bytes_max.saturating_sub(bytes_max / 16)));
        }
    }

    /// The last entry of the slowest member, among those that answer and are not being sent a snapshot.
    fn furthest_behind(&self, now: Now) -> Option<u64> {
        // Raft forgets after each election timeout which members were active.
        let patience = self.options.election_timeout.saturating_mul(2);
        let answers = |id| self.heard.get(&id).is_some_and(|at| now.at.saturating_sub(*at) < patience);
        let members = self.raft.progress().into_iter();
        let sent_to = members.filter(|one| answers(one.id) && one.mode != Mode::Snapshot);
        sent_to.map(|one| one.matched).min()
    }
}
