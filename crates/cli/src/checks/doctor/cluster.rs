//! Checks of the members' own figures: quota, history, alarms, open files, disks.

use super::Finding;
use super::machine::OPEN_FILES_MIN;
use crate::checks::format::{Grade, bytes, number, time};
use crate::command::Context;
use crate::failure::Outcome;
use crate::globals;
use api::etcdserverpb::{MemberListRequest, StatusRequest, StatusResponse};
use client::Endpoint;
use std::time::Duration;

/// A member, and what it says.
pub(super) struct Told {
    endpoint: Endpoint,
    status: StatusResponse,
    /// Its metrics, if it shows them there.
    metrics: String,
}

/// Of its quota, what a member may have taken without a warning.
const QUOTA_SHARE_MAX: f64 = 0.8;
/// A history that has never been compacted is worth a warning when it is so long.
const HISTORY_MAX: f64 = 10_000.0;
/// The quota that 0 means.
const QUOTA_DEFAULT: i64 = 2 << 30;

/// Whether a process listens at one of the endpoints. For commands that name none.
pub(super) fn is_somebody_there(context: &Context) -> bool {
    let endpoints = globals::endpoints(&context.parsed).unwrap_or_default();
    endpoints.iter().any(|endpoint| std::net::TcpStream::connect(endpoint.address()).is_ok())
}

/// Asks all members that can be reached.
pub(super) fn ask(context: &Context) -> Outcome<Vec<Told>> {
    let client = context.client()?;
    let listed = context.call(client.member_list(MemberListRequest { linearizable: false }))?;
    let mut told = Vec::new();
    for member in &listed.members {
        // The test of the network reports members that do not answer; of several URLs one is enough.
        let urls = member.client_ur_ls.iter().filter_map(|url| url.parse::<Endpoint>().ok());
        for endpoint in urls {
            let client = globals::client(&context.parsed, vec![endpoint.clone()], Some(context.patience()))?;
            let Ok(status) = context.wait(client.status(&endpoint, StatusRequest {})) else { continue };
            let metrics = context.wait(client.page(&endpoint, "/metrics")).unwrap_or_default();
            told.push(Told { endpoint, status, metrics });
            break;
        }
    }
    Ok(told)
}

/// How many revisions are kept, if older ones have been compacted.
pub(super) fn kept(members: &[Told]) -> Option<u64> {
    let member = members.first()?;
    let compacted =
        metric(&member.metrics, "etcd_debugging_mvcc_compact_revision").filter(|revision| *revision > 0.0)?;
    Some((member.status.header.as_ref()?.revision as f64 - compacted).max(0.0) as u64)
}

/// The findings about them.
pub(super) fn findings(members: &[Told]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in members {
        findings.push(member.quota());
        findings.extend(member.alarms());
        findings.extend(member.files());
        findings.extend(member.syncs());
    }
    // All have the same.
    findings.extend(members.first().and_then(Told::history));
    findings
}

impl Told {
    fn quota(&self) -> Finding {
        let quota = match self.status.db_size_quota {
            0 => metric(&self.metrics, "etcd_server_quota_backend_bytes").map_or(QUOTA_DEFAULT, |bytes| bytes as i64),
            quota => quota,
        };
        let (used, endpoint) = (self.status.db_size.max(0).unsigned_abs(), &self.endpoint);
        let Some(quota) = u64::try_from(quota).ok().filter(|quota| *quota > 0) else {
            return Finding::new(
                "quota",
                Grade::Warn,
                format!(
                    "{endpoint} has none (--quota-backend-bytes is negative): only a full disk ends what {} are now, and a member needs \
                     room to compact",
                    bytes(used)
                ),
            );
        };
        let share = used as f64 / quota as f64;
        let text = format!("{endpoint} has {} of {} ({:.0} %)", bytes(used), bytes(quota), share * 100.0);
        if share <= QUOTA_SHARE_MAX {
            return Finding::new("quota", Grade::Pass, text);
        }
        let text = format!(
            "{text}, more than {:.0} %: at 100 % all writes are refused (NOSPACE); compact the history, or raise --quota-backend-bytes",
            QUOTA_SHARE_MAX * 100.0
        );
        Finding::new("quota", Grade::Warn, text)
    }

    fn alarms(&self) -> Option<Finding> {
        let errors = self.status.errors.join(", ");
        (!errors.is_empty()).then(|| {
            let text = format!(
                "{}: {errors}; the alarm stays until its cause is gone and `cairn ctl alarm disarm` was run",
                self.endpoint
            );
            Finding::new("alarms", Grade::Fail, text)
        })
    }

    fn files(&self) -> Option<Finding> {
        let most = metric(&self.metrics, "process_max_fds")?;
        let open = metric(&self.metrics, "process_open_fds").unwrap_or_default();
        let text = format!(
            "{} has {} of {} open, and {} are usual: each connection takes one, and new ones are refused when they are used up; raise \
             the hard limit (with systemd LimitNOFILE)",
            self.endpoint,
            number(open),
            number(most),
            number(OPEN_FILES_MIN as f64)
        );
        (most < OPEN_FILES_MIN as f64).then(|| Finding::new("open files", Grade::Warn, text))
    }

    /// How long its log has waited for its disk since it was started.
    fn syncs(&self) -> Option<Finding> {
        const NAME: &str = "etcd_disk_wal_fsync_duration_seconds";
        let count = metric(&self.metrics, &format!("{NAME}_count"))?;
        let within = |seconds: &str| {
            let buckets =
                self.metrics.lines().filter_map(|line| line.strip_prefix(NAME)?.strip_prefix("_bucket{le=\""));
            let mut values = buckets.filter_map(|rest| {
                let (bound, value) = rest.split_once("\"}")?;
                (bound == seconds).then(|| value.trim().parse::<f64>().ok())?
            });
            values.next()
        };
        // The bounds are powers of two of a millisecond.
        let (fast, slow) = (within("0.008")?, within("0.016")?);
        if count < 100.0 {
            return None;
        }
        let share = |part: f64| part / count * 100.0;
        let text = |bound: u64, part: f64| {
            let bound = time(Duration::from_millis(bound));
            format!(
                "{} has synced its log {} times, {:.2} % of them within {bound}",
                self.endpoint,
                number(count),
                share(part)
            )
        };
        let why =
            "fewer than 99 %: every write waits for a sync; give the log a faster disk, or one of its own (--wal-dir)";
        Some(match () {
            () if share(fast) >= 99.0 => Finding::new("log", Grade::Pass, text(8, fast)),
            () if share(slow) >= 99.0 => Finding::new("log", Grade::Warn, format!("{}, {why}", text(8, fast))),
            () => Finding::new("log", Grade::Fail, format!("{}, {why}", text(16, slow))),
        })
    }

    fn history(&self) -> Option<Finding> {
        let revision = self.status.header.as_ref()?.revision as f64;
        let compacted = metric(&self.metrics, "etcd_debugging_mvcc_compact_revision")?.max(0.0);
        Some(if compacted > 0.0 {
            let text = format!(
                "{} revisions are kept, all before {} are compacted",
                number(revision - compacted),
                number(compacted)
            );
            Finding::new("history", Grade::Pass, text)
        } else if revision > HISTORY_MAX {
            let text = format!(
                "all of {} revisions are kept, nothing has ever been compacted: history grows until the quota ends all writes; set \
                 --auto-compaction-retention, or compact",
                number(revision)
            );
            Finding::new("history", Grade::Warn, text)
        } else {
            Finding::new("history", Grade::Pass, format!("{} revisions, nothing is compacted yet", number(revision)))
        })
    }
}

/// A metric without labels.
fn metric(page: &str, name: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::etcdserverpb::ResponseHeader;

    fn told(size: i64, quota: i64, revision: i64, metrics: &str) -> Told {
        let header = Some(ResponseHeader { revision, ..Default::default() });
        let status = StatusResponse { header, db_size: size, db_size_quota: quota, ..Default::default() };
        Told { endpoint: "127.0.0.1:1".parse().expect("an endpoint"), status, metrics: metrics.into() }
    }

    #[test]
    fn quotas_and_history() {
        let grade = |size, quota| told(size, quota, 1, "").quota().grade;
        assert_eq!(
            (grade(1, 0), grade(79, 100), grade(81, 100), grade(1, -1)),
            (Grade::Pass, Grade::Pass, Grade::Warn, Grade::Warn)
        );
        let history = |revision, page: &str| told(1, 0, revision, page).history().map(|finding| finding.grade);
        let never = "etcd_debugging_mvcc_compact_revision -1\n";
        assert_eq!(
            (history(10_001, never), history(9, never), history(9, "")),
            (Some(Grade::Warn), Some(Grade::Pass), None)
        );
        let compacted = "etcd_debugging_mvcc_compact_revision 49000\n";
        assert_eq!(kept(&[told(1, 0, 50_000, compacted)]), Some(1000));
        assert_eq!((kept(&[told(1, 0, 9, never)]), kept(&[])), (None, None));
        assert_eq!(history(50_000, "etcd_debugging_mvcc_compact_revision 49000\n"), Some(Grade::Pass));
    }

    #[test]
    fn warnings_say_why() {
        let metrics = "etcd_debugging_mvcc_compact_revision -1\nprocess_max_fds 1024\nprocess_open_fds 9\n\
                       etcd_disk_wal_fsync_duration_seconds_bucket{le=\"0.008\"} 900\n\
                       etcd_disk_wal_fsync_duration_seconds_bucket{le=\"0.016\"} 995\n\
                       etcd_disk_wal_fsync_duration_seconds_count 1000\n";
        let found = findings(&[told(99, 100, 10_001, metrics), told(99, -1, 10_001, metrics)]);
        let warned: Vec<_> = found.iter().filter(|finding| finding.grade == Grade::Warn).collect();
        assert_eq!(warned.len(), 7, "{found:?}");
        for finding in warned {
            let why = finding.text.split_once(": ").map(|(_, why)| why.len());
            assert!(why > Some(20), "{finding:?}");
        }
    }

    #[test]
    fn logs_that_wait_for_the_disk() {
        let page = |fast: u32, slow: u32| {
            format!(
                "etcd_disk_wal_fsync_duration_seconds_bucket{{le=\"0.008\"}} {fast}\n\
                 etcd_disk_wal_fsync_duration_seconds_bucket{{le=\"0.016\"}} {slow}\n\
                 etcd_disk_wal_fsync_duration_seconds_count 1000\n"
            )
        };
        let grade = |fast, slow| told(1, 0, 1, &page(fast, slow)).syncs().map(|finding| finding.grade);
        assert_eq!(grade(995, 1000), Some(Grade::Pass));
        assert_eq!((grade(900, 995), grade(900, 900)), (Some(Grade::Warn), Some(Grade::Fail)));
        assert_eq!(told(1, 0, 1, "").syncs(), None);
    }
}
