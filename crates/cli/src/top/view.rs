//! What the page shows: figures of the time between two looks.

use super::ask::Answer;
use super::hot::Hottest;
use super::look::Look;
use std::collections::VecDeque;
use std::time::Instant;

/// Lines about slow requests that are kept.
const SLOW_MAX: usize = 100;
/// A request is slow that takes longer than about this; the bound of a bucket.
const SLOW_SECONDS: f64 = 0.25;

/// Stages of a request, as the members name them.
pub(super) const STAGES: [&str; 7] = ["queue", "log_sync", "replication", "apply", "read_index", "range", "send"];

#[derive(Default)]
pub(super) struct View {
    pub(super) began: Option<Instant>,
    pub(super) before: Vec<Answer>,
    pub(super) members: Vec<Row>,
    pub(super) revision: i64,
    pub(super) term: u64,
    pub(super) leader: Option<String>,
    pub(super) alarms: Vec<String>,
    pub(super) hottest: Hottest,
    /// The newest last.
    pub(super) slow: VecDeque<Slow>,
    /// Seconds between the two looks.
    pub(super) seconds: f64,
}

/// A member.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) role: &'static str,
    /// Why it does not answer.
    pub(super) error: Option<String>,
    /// Entries that it has to apply, as of what the farthest member has committed.
    pub(super) lag: u64,
    pub(super) db_bytes: u64,
    /// The rest are of the metrics; none without them.
    pub(super) figures: Option<Figures>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) puts: f64,
    pub(super) deletes: f64,
    pub(super) txns: f64,
    pub(super) ranges: f64,
    pub(super) leases_granted: f64,
    pub(super) leases_renewed: f64,
    pub(super) events: f64,
    pub(super) put_seconds: Option<f64>,
    pub(super) range_seconds: Option<f64>,
    pub(super) fsync_seconds: Option<f64>,
    pub(super) connections: Option<f64>,
    pub(super) watches: Option<f64>,
    pub(super) leases: Option<f64>,
    pub(super) stages: Vec<Option<f64>>,
}

/// Requests of one kind that were slow between two looks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Slow {
    /// Seconds since the page began.
    pub(super) at: u64,
    pub(super) member: String,
    pub(super) kind: String,
    pub(super) count: u64,
}

impl View {
    /// Takes what the members said now; all figures are of the time since they were asked last.
    pub(super) fn take(&mut self, now: Vec<Answer>, hottest: &Hottest) {
        let began = *self.began.get_or_insert_with(Instant::now);
        let committed =
            now.iter().filter_map(|answer| answer.status.as_ref().ok()).map(|status| status.raft_index).max();
        let statuses = || now.iter().filter_map(|answer| Some((answer, answer.status.as_ref().ok()?)));
        self.revision =
            statuses().filter_map(|(_, status)| Some(status.header.as_ref()?.revision)).max().unwrap_or(self.revision);
        self.term = statuses().map(|(_, status)| status.raft_term).max().unwrap_or(self.term);
        let leads = |answer: &Answer| {
            let status = answer.status.as_ref().ok();
            status.is_some_and(|status| {
                status.leader != 0 && status.header.as_ref().is_some_and(|header| header.member_id == status.leader)
            })
        };
        // Of two that say so the one of the later term does.
        let leader = now.iter().filter(|answer| leads(answer));
        let leader = leader.max_by_key(|answer| answer.status.as_ref().map_or(0, |status| status.raft_term));
        self.leader = leader.map(|answer| answer.name.clone());
        let mut alarms: Vec<String> = statuses().flat_map(|(_, status)| status.errors.clone()).collect();
        alarms.sort_unstable();
        alarms.dedup();
        self.alarms = alarms;
        self.hottest = hottest.clone();
        self.members.clear();
        for answer in &now {
            let before = self.before.iter().find(|before| before.endpoint == answer.endpoint);
            let seconds = before.map_or(0.0, |before| answer.at.duration_since(before.at).as_secs_f64());
            if seconds > 0.0 {
                self.seconds = seconds;
            }
            let old = before.map(|before| &before.look).filter(|look| !look.is_empty());
            let figures = old.filter(|_| !answer.look.is_empty() && seconds > 0.0);
            let figures = figures.map(|before| Figures::of(&answer.look, before, seconds));
            if let Some(before) = old {
                let at = answer.at.saturating_duration_since(began).as_secs();
                self.slow.extend(slow(answer, before, at));
            }
            let role = match &answer.status {
                Err(_) => "down",
                Ok(status) if status.is_learner => "learner",
                Ok(_) if leads(answer) => "leader",
                Ok(status) if status.leader == 0 => "no leader",
                Ok(_) => "follower",
            };
            let status = answer.status.as_ref().ok();
            let applied = status.map_or(0, |status| status.raft_applied_index);
            self.members.push(Row {
                name: answer.name.clone(),
                role,
                error: answer.status.as_ref().err().cloned(),
                lag: if status.is_some() { committed.unwrap_or(0).saturating_sub(applied) } else { 0 },
                db_bytes: status.map_or(0, |status| status.db_size.max(0).unsigned_abs()),
                figures,
            });
        }
        while self.slow.len() > SLOW_MAX {
            self.slow.pop_front();
        }
        self.before = now;
    }
}

const DURATIONS: &str = "etcd_server_request_duration_seconds";

/// The kinds of requests of which some were slow.
fn slow(answer: &Answer, before: &Look, at: u64) -> Vec<Slow> {
    let kinds = answer.look.labels(&format!("{DURATIONS}_bucket"), "type");
    let of = |kind: &String| {
        let count = answer.look.longer(before, DURATIONS, &format!("type=\"{kind}\""), SLOW_SECONDS) as u64;
        (count > 0).then(|| Slow { at, member: answer.name.clone(), kind: kind.clone(), count })
    };
    kinds.iter().filter_map(of).collect()
}

impl Figures {
    fn of(now: &Look, before: &Look, seconds: f64) -> Figures {
        let rate = |family: &str| now.growth(before, family, "") / seconds;
        let stage =
            |stage: &&str| now.p99(before, "cairn_request_stage_duration_seconds", &format!("stage=\"{stage}\""));
        Figures {
            puts: rate("etcd_mvcc_put_total"),
            deletes: rate("etcd_mvcc_delete_total"),
            txns: rate("etcd_mvcc_txn_total"),
            ranges: rate("etcd_mvcc_range_total"),
            leases_granted: rate("etcd_debugging_lease_granted_total"),
            leases_renewed: rate("etcd_debugging_lease_renewed_total"),
            events: rate("etcd_debugging_mvcc_events_total"),
            put_seconds: now.p99(before, DURATIONS, "type=\"Put\""),
            range_seconds: now.p99(before, DURATIONS, "type=\"Range\""),
            fsync_seconds: now.p99(before, "etcd_disk_wal_fsync_duration_seconds", ""),
            connections: now.value("cairn_rpc_connections"),
            watches: now.value("etcd_debugging_mvcc_watcher_total"),
            leases: now.value("cairn_leases"),
            stages: STAGES.iter().map(stage).collect(),
        }
    }
}
