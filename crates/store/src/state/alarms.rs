//! The alarms that are on. They are replicated, so every member refuses the same requests.

use api::etcdserverpb::{AlarmMember, AlarmRequest, AlarmResponse, AlarmType, alarm_request::AlarmAction};
use std::collections::BTreeSet;

/// The alarms that are on, by kind and member.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alarms {
    on: BTreeSet<(i32, u64)>,
}

impl Alarms {
    pub(crate) fn new(on: impl IntoIterator<Item = AlarmMember>) -> Alarms {
        Alarms { on: on.into_iter().map(|alarm| (alarm.alarm, alarm.member_id)).collect() }
    }

    /// The alarms of one kind, or all of them (`NONE`).
    pub(crate) fn list(&self, kind: i32) -> Vec<AlarmMember> {
        let wanted = self.on.iter().filter(|(alarm, _)| kind == AlarmType::None as i32 || *alarm == kind);
        wanted.map(|&(alarm, member_id)| AlarmMember { member_id, alarm }).collect()
    }

    /// How many are on.
    pub(crate) fn count(&self) -> usize {
        self.on.len()
    }

    /// Whether some member raised this alarm.
    pub(crate) fn is_on(&self, kind: AlarmType) -> bool {
        let kind = kind as i32;
        self.on.range((kind, 0)..=(kind, u64::MAX)).next().is_some()
    }

    /// Answers a request, switching an alarm on or off if it says so. The answer lists what was asked for, is on now, or was
    /// switched off.
    pub(crate) fn apply(&mut self, request: &AlarmRequest) -> AlarmResponse {
        let alarm = AlarmMember { member_id: request.member_id, alarm: request.alarm };
        let alarms = match AlarmAction::try_from(request.action) {
            Ok(AlarmAction::Get) => self.list(request.alarm),
            // Kinds of the future are kept, as on members of etcd. How many a client may raise is checked before they are proposed.
            Ok(AlarmAction::Activate) if request.alarm != AlarmType::None as i32 => {
                self.on.insert((request.alarm, request.member_id));
                vec![alarm]
            }
            Ok(AlarmAction::Deactivate) if self.on.remove(&(request.alarm, request.member_id)) => vec![alarm],
            _ => Vec::new(),
        };
        AlarmResponse { header: None, alarms }
    }
}

/// Whether this version knows what such an alarm means.
pub(crate) fn is_known(kind: i32) -> bool {
    AlarmType::try_from(kind).is_ok_and(|kind| kind != AlarmType::None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(alarms: &mut Alarms, action: AlarmAction, member_id: u64, alarm: AlarmType) -> Vec<(u64, i32)> {
        let request = AlarmRequest { action: action as i32, member_id, alarm: alarm as i32 };
        alarms.apply(&request).alarms.iter().map(|alarm| (alarm.member_id, alarm.alarm)).collect()
    }

    #[test]
    fn on_and_off() {
        let mut alarms = Alarms::default();
        assert_eq!(ask(&mut alarms, AlarmAction::Activate, 7, AlarmType::Nospace), [(7, 1)]);
        assert_eq!(ask(&mut alarms, AlarmAction::Activate, 7, AlarmType::Nospace), [(7, 1)]);
        assert_eq!(ask(&mut alarms, AlarmAction::Activate, u64::MAX, AlarmType::Corrupt), [(u64::MAX, 2)]);
        assert_eq!(ask(&mut alarms, AlarmAction::Activate, 7, AlarmType::None), []);
        assert_eq!(ask(&mut alarms, AlarmAction::Get, 0, AlarmType::None), [(7, 1), (u64::MAX, 2)]);
        assert_eq!(ask(&mut alarms, AlarmAction::Get, 0, AlarmType::Corrupt), [(u64::MAX, 2)]);
        assert!(alarms.is_on(AlarmType::Nospace) && alarms.is_on(AlarmType::Corrupt));
        assert_eq!(ask(&mut alarms, AlarmAction::Deactivate, 8, AlarmType::Nospace), []);
        assert_eq!(ask(&mut alarms, AlarmAction::Deactivate, 7, AlarmType::Nospace), [(7, 1)]);
        assert!(!alarms.is_on(AlarmType::Nospace));
        let unknown = AlarmRequest { action: 99, member_id: 1, alarm: -5 };
        assert_eq!(alarms.apply(&unknown).alarms, []);
        for alarm in [-5, 3, i32::MAX] {
            let ask = |action: AlarmAction| AlarmRequest { action: action as i32, member_id: 1, alarm };
            assert_eq!(alarms.apply(&ask(AlarmAction::Activate)).alarms, [AlarmMember { member_id: 1, alarm }]);
            assert_eq!(alarms.apply(&ask(AlarmAction::Get)).alarms, [AlarmMember { member_id: 1, alarm }]);
            assert_eq!(alarms.apply(&ask(AlarmAction::Deactivate)).alarms, [AlarmMember { member_id: 1, alarm }]);
            assert_eq!(alarms.apply(&ask(AlarmAction::Deactivate)).alarms, []);
        }
        assert_eq!(alarms.list(AlarmType::None as i32).len(), 1);
    }
}
