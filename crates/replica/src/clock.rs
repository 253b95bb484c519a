//! What time brings: ticks, expired leases, entries for followers that are far behind, and a log whose disk does not answer.

use crate::replica::{InputsOf, Replica};
use crate::shell::leads_for_sure;
use crate::{Mistake, Note, Now, Shell};
use std::time::Duration;

/// Bytes sent at a time to a follower that is far behind. With the pause below that is 64 MiB per second, in parts that
/// take the leader half a millisecond.
const LAGGING_BYTES: u64 = 128 << 10;
const LAGGING_PAUSE: Duration = Duration::from_millis(2);
/// Time after which the end of a lease is proposed again if it is not applied.
const REVOKE_RETRY_MS: u64 = 3_000;
/// When to look whether more leases may end, if more are due than may end at once: short beside a heartbeat, and long enough for
/// requests that come in between.
const REVOKE_PAUSE: Duration = Duration::from_millis(2);

/// What to do about a log whose disk does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// Nothing: it answers.
    None,
    /// No follower needs this member. Its clients' requests must end in time ([`Replica::keep_time`]).
    Waits {
        /// Whether the member has heard from no leader for so long that it must report none.
        is_lost: bool,
    },
    /// Others follow this member: another thread must take its turns meanwhile ([`Replica::stand_in`]).
    Leads,
}

impl<C> Replica<C> {
    /// The time of the next work even if nothing arrives.
    pub fn deadline(&self) -> Duration {
        [self.next_lagging, self.next_expiry, self.next_takeover]
            .into_iter()
            .flatten()
            .fold(self.next_tick, Duration::min)
    }

    /// Does the work that is due by the clock. Returns whether it ticked; it ticks every heartbeat.
    pub fn tick_if_due<S: Shell<Source = C>>(&mut self, shell: &mut S, now: Now) -> bool {
        self.send_lagging(now);
        if now.at < self.next_tick {
            if self.next_expiry.is_some_and(|at| now.at >= at) {
                self.end_expired_leases(shell, now);
            }
            return false;
        }
        let heartbeat = self.options.heartbeat;
        let took = now.at.saturating_sub(self.last_tick);
        if self.was_leader && took > heartbeat.saturating_mul(3) && !self.raft.status().sole_voter {
            shell.note(Note::HeartbeatLate(took));
        }
        self.last_tick = now.at;
        // After a stall one tick replaces all missed ones: nothing else could happen meanwhile either.
        self.next_tick = now.at.saturating_add(heartbeat);
        self.note_active(now);
        self.raft.tick();
        self.end_expired_leases(shell, now);
        if shell.has_reads() {
            shell.read_index(|reads| reads.tick(&mut self.raft, now.ms));
        }
        self.proposals.tick(shell);
        self.outgoing.tick(&mut self.raft, now);
        true
    }

    fn send_lagging(&mut self, now: Now) {
        if self.next_lagging.is_some_and(|at| now.at >= at) {
            self.raft.send_lagging(LAGGING_BYTES);
            self.next_lagging = None;
        }
        if self.next_lagging.is_none() && self.raft.has_lagging() {
            self.next_lagging = Some(now.at.saturating_add(LAGGING_PAUSE));
        }
    }

    fn end_expired_leases<S: Shell<Source = C>>(&mut self, shell: &mut S, now: Now) {
        self.next_expiry = None;
        // This needs the current status, not that of the last settle: after a stall, messages of another leader may
        // have been taken just before. A proposal forwarded to that leader could end a lease that is kept alive there.
        let passes_on = shell.makes(Mistake::ExpiresForNextLeader);
        if !leads_for_sure(&self.raft.status()) && !passes_on {
            return;
        }
        let (ending_max, at_once) = (self.options.lease_ends_max, self.options.lease_ends_at_once);
        let is_early = shell.makes(Mistake::EndsLeasesEarly);
        let early_ms = if is_early { self.options.heartbeat.as_millis() as u64 } else { 0 };
        let over_ms = now.ms.saturating_add(early_ms);
        let (expired, is_late) = shell.lessor(|lessor, _| {
            let expired =
                lessor.expired(over_ms, ending_max.min(lessor.ending().saturating_add(at_once)), REVOKE_RETRY_MS);
            (expired, lessor.is_late(over_ms))
        });
        if is_late {
            self.next_expiry = Some(now.at.saturating_add(REVOKE_PAUSE));
        }
        if expired.is_empty() {
            return;
        }
        let mut batch = Vec::with_capacity(expired.len());
        let mut staying = Vec::new();
        for lease in expired {
            match shell.revoke(lease) {
                Some(proposal) => batch.push(proposal),
                // It is due again later.
                None => staying.push(lease),
            }
        }
        if !staying.is_empty() {
            shell.lessor(|lessor, _| staying.iter().for_each(|lease| lessor.stays(*lease)));
        }
        shell.note(Note::LeasesExpired(batch.len()));
        if passes_on {
            return self.proposals.add(shell, &mut self.raft, batch, now);
        }
        self.proposals.add_now(shell, &mut self.raft, batch, now);
    }

    /// What to do while the log is being synced.
    pub fn stall(&self, now: Now) -> Stall {
        let stalled = self.stalled(now);
        if self.syncing_since.is_none() || stalled < self.options.heartbeat {
            return Stall::None;
        }
        let is_alone = self.raft.status().sole_voter;
        if self.leads_others() {
            return Stall::Leads;
        }
        // A follower that cannot write hears from no leader either, and its clients must learn that.
        Stall::Waits { is_lost: stalled > self.options.election_timeout.saturating_mul(2) && !is_alone }
    }

    /// Whether this member led others when it last settled.
    pub fn leads_others(&self) -> bool {
        self.was_leader && !self.raft.status().sole_voter
    }

    fn stalled(&self, now: Now) -> Duration {
        self.syncing_since.map_or(Duration::ZERO, |since| now.at.saturating_sub(since))
    }

    /// Takes a leader's turn while its log waits for the disk: sends heartbeats and answers reads. Entries that this
    /// adds for the log stay for [`Replica::take_log_batch`] until the disk is back. After an election timeout
    /// leadership is transferred, after two the leader steps down. Returns whether the clock ticked.
    pub fn stand_in<S: Shell<Source = C>>(
        &mut self,
        shell: &mut S,
        inputs: InputsOf<S>,
        now: Now,
    ) -> Result<bool, S::Fault> {
        let (stalled, patience) = (self.stalled(now), self.options.election_timeout);
        self.accept(shell, inputs, now);
        let ticked = self.tick_if_due(shell, now);
        if stalled > patience.saturating_mul(2) {
            shell.note(Note::LogStalledStepsDown { stalled });
            self.raft.step_down();
        } else if stalled > patience && self.raft.status().transferee == 0 {
            self.hand_leadership_over(shell, stalled);
        }
        self.advance(shell, now)?;
        Ok(ticked)
    }

    fn hand_leadership_over<S: Shell<Source = C>>(&mut self, shell: &mut S, stalled: Duration) {
        let Some(to) = self.raft.successor() else { return };
        shell.note(Note::LogStalledHandsOver { to, stalled });
        if let Err(error) = self.raft.transfer(to) {
            shell.note(Note::CannotTransferLeader(&error));
        }
    }

    /// Notes which members are active.
    fn note_active(&mut self, now: Now) {
        let members = self.raft.progress();
        self.heard.retain(|id, _| members.iter().any(|member| member.id == *id));
        self.heard.extend(members.iter().filter(|member| member.recently_active).map(|member| (member.id, now.at)));
    }
}
