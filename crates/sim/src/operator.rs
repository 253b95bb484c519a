//! The operator of a run with a quota: looks for alarms now and then, makes room, and disarms them.

use crate::host::Host;
use crate::operation::{Request, State};
use crate::schedule::Event;
use crate::world::World;
use api::Message;
use api::etcdserverpb::alarm_request::AlarmAction;
use api::etcdserverpb::*;
use disk::sim::Random;

/// Separates the operator's random choices from all others.
const STREAM: u64 = 0x0b5e_12fa_0c47_a100;

/// Alarms that the operator disarms before it makes room again. Members that are short of room raise theirs as fast as it disarms them.
const DISARMED_MAX: u64 = 20;

/// What the operator does next.
#[derive(Clone, Copy)]
enum Step {
    Look,
    Delete,
    Compact,
    Disarm,
}

/// The operator of a run with a quota.
pub(crate) struct Operator {
    random: Random,
    step: Step,
    /// The request under way.
    waits_for: Option<usize>,
    /// Alarms that were disarmed.
    pub(crate) disarmed: u64,
    /// Those since it made room.
    disarmed_since: u64,
}

impl Operator {
    pub(crate) fn new(seed: u64) -> Operator {
        Operator {
            random: Random::new(seed ^ STREAM),
            step: Step::Look,
            waits_for: None,
            disarmed: 0,
            disarmed_since: 0,
        }
    }
}

impl World {
    /// The operator waits for an answer, or takes the next step. It works to the end of the run: without it nothing is written any more.
    pub(crate) fn operate(&mut self) {
        if let Some(operation) = self.operator.waits_for {
            match self.env.history.operations[operation].state {
                State::Pending => return self.operate_in(20_000),
                State::Done => self.operator.advance(),
                State::Refused | State::Unknown => {}
            }
            self.operator.waits_for = None;
        }
        let random = &mut self.operator.random;
        // Others may be no members any more, or not yet, or behind.
        let alarmed: Vec<_> = self.hosts.iter().filter_map(|host| Some((host.index, alarm_at(host)?))).collect();
        let Some((host, alarm)) = alarmed.get(random.below(alarmed.len().max(1) as u64) as usize).copied() else {
            self.operator.step = Step::Look;
            let delay_us = if self.finale.has_begun() { 100_000 } else { 100_000 + random.below(900_000) };
            return self.operate_in(delay_us);
        };
        if matches!(self.operator.step, Step::Look) {
            // Some only compact. That may not be enough, and then the next write raises the alarm again.
            let deletes = random.chance(60) || self.finale.has_begun();
            self.operator.step = if deletes { Step::Delete } else { Step::Compact };
        }
        let id = self.env.request_id();
        let header = Some(RequestHeader { id, ..Default::default() });
        let request = match self.operator.step {
            Step::Look | Step::Delete => {
                let delete = DeleteRangeRequest { key: "k".into(), range_end: "l".into(), prev_kv: false };
                InternalRaftRequest { header, delete_range: Some(delete), ..Default::default() }
            }
            Step::Compact => {
                let revision = self.env.history.model().revision();
                let compaction = Some(CompactionRequest { revision, physical: false });
                InternalRaftRequest { header, compaction, ..Default::default() }
            }
            Step::Disarm => {
                let action = AlarmAction::Deactivate as i32;
                let alarm = Some(AlarmRequest { action, member_id: alarm.member_id, alarm: alarm.alarm });
                InternalRaftRequest { header, alarm, ..Default::default() }
            }
        };
        let request = Request::Write(request.encode_to_vec().into());
        let operation = self.env.history.begin(self.env.now_us, None, id, request);
        self.operator.waits_for = Some(operation);
        self.request(host, operation);
        self.operate_in(20_000);
    }

    fn operate_in(&mut self, delay_us: u64) {
        self.env.after(delay_us, Event::Operate);
    }
}

/// The first alarm that a host's process has.
fn alarm_at(host: &Host) -> Option<AlarmMember> {
    host.process.as_ref()?.machine.store.alarms().first().copied()
}

impl Operator {
    /// Goes on to the next step. Alarms are disarmed until there are none, or it turns out that more room is needed.
    fn advance(&mut self) {
        self.step = match self.step {
            Step::Look | Step::Delete => Step::Compact,
            Step::Compact => {
                self.disarmed_since = 0;
                Step::Disarm
            }
            Step::Disarm => {
                self.disarmed += 1;
                self.disarmed_since += 1;
                if self.disarmed_since < DISARMED_MAX { Step::Disarm } else { Step::Look }
            }
        };
    }
}
