//! When a member raises its NOSPACE alarm.

use crate::mistake::Mistake;
use crate::store::Store;
use api::etcdserverpb::{AlarmRequest, AlarmType, alarm_request::AlarmAction};
use std::sync::atomic::{AtomicBool, Ordering};

/// A member's NOSPACE alarm: raised through the log once, however many writes find no space, until it is disarmed.
#[derive(Debug, Default)]
pub struct NoSpaceAlarm {
    /// The entry that raises it is under way.
    is_raised: AtomicBool,
}

impl NoSpaceAlarm {
    /// Whether the member is to propose [`NoSpaceAlarm::request`] now. Not while the alarm is on, and once until [`NoSpaceAlarm::reset`].
    pub fn raise(&self, store: &Store, member_id: u64) -> bool {
        let is_own = |alarm: &api::etcdserverpb::AlarmMember| {
            alarm.member_id == member_id && alarm.alarm == AlarmType::Nospace as i32
        };
        !store.alarms().iter().any(is_own) && !self.is_raised.swap(true, Ordering::Relaxed)
    }

    /// What raises it.
    pub fn request(member_id: u64) -> AlarmRequest {
        AlarmRequest { action: AlarmAction::Activate as i32, member_id, alarm: AlarmType::Nospace as i32 }
    }

    /// Notes that the proposal has failed, or that an alarm was raised or disarmed.
    pub fn reset(&self) {
        if !Mistake::RaisesAlarmOnce.is_planted() {
            self.is_raised.store(false, Ordering::Relaxed);
        }
    }
}
