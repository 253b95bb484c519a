//! What to set, and why: flags of `cairn serve`, and limits of the system.

use super::class::Class;
use super::machine::OPEN_FILES_MIN;
use super::{Report, network};
use crate::checks::disk::Place;
use crate::checks::format::{bytes, number};
use crate::print::json::Object;

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Advice {
    pub(super) setting: String,
    pub(super) why: String,
}

const GIB: u64 = 1 << 30;
/// The smallest quota that is worth a member.
const QUOTA_MIN: u64 = 256 << 20;

impl Advice {
    fn new(setting: impl Into<String>, why: impl Into<String>) -> Advice {
        Advice { setting: setting.into(), why: why.into() }
    }

    /// Whether it is one of `cairn serve`.
    pub(super) fn is_flag(&self) -> bool {
        self.setting.starts_with("--")
    }

    pub(super) fn json(&self) -> String {
        let object = Object::default().text("setting", &self.setting);
        object.raw("isFlag", self.is_flag()).text("why", &self.why).end()
    }
}

/// Everything that is advised.
pub(super) fn all(report: &Report, class: Option<&'static Class>) -> Vec<Advice> {
    let machine = &report.machine;
    let free_bytes = report.place.as_ref().ok().map(Place::free_bytes);
    let mut advice = vec![quota(class, machine.memory_bytes, free_bytes)];
    advice.extend(timing(report));
    advice.extend(compaction(report.kept));
    advice.push(Advice::new("--snapshot-count=10000", "the default: a checkpoint lists files and copies nothing"));
    if machine.heeds_priorities() {
        let why = "the log goes first where the disk is shared, as with `ionice -c2 -n0`";
        advice.push(Advice::new("--io-priority=best-effort:0", why));
    }
    if machine.swap_bytes.is_some_and(|swap| swap > 0) {
        advice.push(Advice::new("--memory-mlock", "a member is never swapped out (needs LimitMEMLOCK=infinity)"));
        advice.push(Advice::new("swapoff -a", "or this, if the machine does nothing else"));
    }
    if machine.open_files.1 < OPEN_FILES_MIN {
        let setting = format!("ulimit -Hn {OPEN_FILES_MIN}");
        advice.push(Advice::new(
            setting,
            format!("with systemd LimitNOFILE={OPEN_FILES_MIN}; a member raises the soft limit itself"),
        ));
    }
    if machine.huge_pages.as_deref() == Some("always") {
        let setting = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
        advice.push(Advice::new(setting, "memory that is given back is free then"));
    }
    advice
}

fn timing(report: &Report) -> [Advice; 2] {
    let (rule, why) = match network::advice(report.reached()) {
        Some(rule) if rule == network::Rule::DEFAULT => (rule, "the default: the members are near enough"),
        Some(rule) => (rule, "about the longest round trip to a member"),
        None => {
            (network::Rule::DEFAULT, "the default, for members in one data centre; `cairn check network` measures it")
        }
    };
    [
        Advice::new(format!("--heartbeat-interval={}", rule.heartbeat_ms), why),
        Advice::new(format!("--election-timeout={}", rule.election_ms), "ten times that, the same on every member"),
    ]
}

/// How far history goes back. Members do not tell what they are set to, but it shows whether anybody compacts.
fn compaction(kept: Option<u64>) -> [Advice; 2] {
    let why = match kept {
        Some(kept) => format!(
            "where nobody else compacts: here somebody does ({} revisions are kept), as Kubernetes does by itself",
            number(kept as f64)
        ),
        None => "without it all history is kept, until the quota ends all writes (Kubernetes compacts by itself); a watch or a \
                 client that was away for less than an hour misses nothing"
            .to_owned(),
    };
    [
        Advice::new("--auto-compaction-mode=periodic", "history goes by its age"),
        Advice::new("--auto-compaction-retention=1h", why),
    ]
}

/// As much as the class is for, if memory and disk have room for it: keys are in memory, and of files up to half may be dead.
fn quota(class: Option<&'static Class>, memory_bytes: Option<u64>, free_bytes: Option<u64>) -> Advice {
    let usual =
        class.map_or((2 * GIB, "the default"), |class| (class.quota_bytes, "as much as is usual for this size"));
    let of_memory = memory_bytes.map(|bytes| (bytes / 2, "half of the memory"));
    let of_disk = free_bytes.map(|bytes| (bytes / 3, "a third of what is free on the disk"));
    let limits = [Some(usual), of_memory, of_disk].into_iter().flatten();
    let (most, limit) = limits.min_by_key(|(bytes, _)| *bytes).unwrap_or(usual);
    let quota = (most - most % QUOTA_MIN).max(QUOTA_MIN);
    let why = match limit {
        limit if most < QUOTA_MIN => {
            format!("the least that is worth a member, though {limit} is only {}", bytes(most))
        }
        limit if limit == usual.1 => limit.to_owned(),
        limit => format!("no more than {limit} ({})", bytes(most)),
    };
    Advice::new(format!("--quota-backend-bytes={quota}"), format!("{}: {why}", bytes(quota)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_have_room() {
        let of = |memory, free| quota(None, Some(memory), free).setting;
        assert_eq!(of(8 * GIB, None), "--quota-backend-bytes=2147483648");
        assert_eq!(of(8 * GIB, Some(3 * GIB)), "--quota-backend-bytes=1073741824");
        assert_eq!(of(GIB, Some(30 * GIB)), "--quota-backend-bytes=536870912");
        assert_eq!(of(0, Some(0)), "--quota-backend-bytes=268435456");
        assert!(quota(None, Some(8 * GIB), Some(4 * GIB)).why.contains("a third"));
    }

    #[test]
    fn reasons_are_true() {
        let why = |memory, free| quota(None, memory, free).why;
        assert_eq!(why(None, None), "2 GiB: the default");
        assert_eq!(why(Some(8 * GIB), Some(60 * GIB)), "2 GiB: the default");
        assert!(why(Some(GIB), None).starts_with("512 MiB: no more than half of the memory (512 MiB)"));
        assert_eq!(
            why(None, Some(30 << 20)),
            "256 MiB: the least that is worth a member, though a third of what is free on the disk is only 10 MiB"
        );
        assert!(compaction(Some(1234))[1].why.contains("(1,234 revisions are kept)"));
        assert!(compaction(None)[1].why.contains("less than an hour"));
    }
}
