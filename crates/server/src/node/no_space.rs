//! The NOSPACE alarm: the quota is full, or the disk.

use super::{Node, Outcome};
use api::RaftRequest;
use api::etcdserverpb::{AlarmRequest, AlarmType, alarm_request::AlarmAction};
use contain::lock;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use telemetry::logging;

impl Node {
    /// Raises the NOSPACE alarm of this member through the log, once until it is disarmed. `needed_bytes` is what was
    /// refused, 0 if that is not known.
    pub(crate) fn raise_no_space(self: &Arc<Self>, needed_bytes: u64) {
        // Held until the alarm is proposed: a client that is refused for lack of space must find the alarm when it then
        // lists alarms.
        let _raising = lock(&self.raising);
        let own = |alarm: &api::etcdserverpb::AlarmMember| {
            alarm.member_id == self.member_id && alarm.alarm == AlarmType::Nospace as i32
        };
        if self.store.alarms().iter().any(own) || self.no_space_raised.swap(true, Ordering::Relaxed) {
            return;
        }
        self.tell_no_space(needed_bytes);
        let request = AlarmRequest {
            action: AlarmAction::Activate as i32,
            member_id: self.member_id,
            alarm: AlarmType::Nospace as i32,
        };
        let node = Arc::downgrade(self);
        let done = move |outcome: Outcome| {
            if let Some(node) = node.upgrade().filter(|_| outcome.is_err()) {
                node.no_space_raised.store(false, Ordering::Relaxed);
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
        let (text, space) = match (is_disk, is_quota) {
            (true, _) => ("no space left on the disk: raising the NOSPACE alarm", "disk"),
            // etcd's words.
            (false, true) => ("message exceeded backend quota; raising alarm", "quota"),
            // Deletions and ends of leases have a reserve of their own, on the fullest disk of the members.
            (false, false) => {
                ("no headroom left on the fullest disk of the members: raising the NOSPACE alarm", "headroom")
            }
        };
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
            ],
        );
    }
}
