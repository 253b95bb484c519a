//! The NOSPACE alarm: the quota is full, or the disk, or the memory.

use super::{Node, Outcome};
use api::RaftRequest;
use contain::lock;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::NoSpaceAlarm;
use telemetry::logging;

impl Node {
    /// Raises the NOSPACE alarm of this member through the log, once until it is disarmed. `needed_bytes` is what was
    /// refused, 0 if that is not known.
    pub(crate) fn raise_no_space(self: &Arc<Self>, needed_bytes: u64) {
        if self.is_observer() {
            // It is no member, and stops no writes of the others.
            return;
        }
        // Held until the alarm is proposed: a client that is refused for lack of space must find the alarm when it then
        // lists alarms.
        let _raising = lock(&self.raising);
        if !self.no_space.raise(&self.store, self.member_id) {
            return;
        }
        self.tell_no_space(needed_bytes);
        let request = NoSpaceAlarm::request(self.member_id);
        let node = Arc::downgrade(self);
        let done = move |outcome: Outcome| {
            if let Some(node) = node.upgrade().filter(|_| outcome.is_err()) {
                node.no_space.reset();
            }
        };
        self.propose(self.as_member(), RaftRequest::Alarm, &api::Message::encode_to_vec(&request), Box::new(done));
    }

    /// Says which space is used up, and how much of it there is. Clients get etcd's text, which does not.
    fn tell_no_space(&self, needed_bytes: u64) {
        let (free, reserve) = self.store.disk_bytes();
        let live = self.store.usage().live_bytes;
        let quota = self.store.quota_bytes().unwrap_or(0);
        let is_disk = self.store.disk_is_low();
        let is_quota = quota > 0 && live.saturating_add(needed_bytes) >= quota;
        let (text, space) = if is_disk {
            ("no space left on the disk: raising the NOSPACE alarm", "disk")
        } else if self.store.memory_is_low() {
            ("the memory budget is used up: raising the NOSPACE alarm", "memory")
        } else if is_quota {
            // etcd's words.
            ("message exceeded backend quota; raising alarm", "quota")
        } else {
            // Deletions and ends of leases have a reserve of their own, on the fullest disk of the members.
            ("no headroom left on the fullest disk of the members: raising the NOSPACE alarm", "headroom")
        };
        let memory = &self.metrics.memory;
        let least = self.headroom.least_told_bytes().unwrap_or(u64::MAX).min(self.headroom.own_bytes());
        let quota_size = logging::size(quota);
        logging::warn(
            text,
            &[
                ("space", space.into()),
                ("needed-bytes", needed_bytes.into()),
                ("live-bytes", live.into()),
                ("quota-size-bytes", quota.into()),
                ("quota-size", (&quota_size).into()),
                ("disk-free-bytes", free.into()),
                ("disk-reserve-bytes", reserve.into()),
                ("headroom-bytes", least.into()),
                ("memory-used-bytes", memory.used_bytes.load(Ordering::Relaxed).into()),
                ("memory-budget-bytes", memory.budget_bytes.load(Ordering::Relaxed).into()),
            ],
        );
    }
}
