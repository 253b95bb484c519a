//! What to set, and why: flags of `cairn serve`, and limits of the system.

use super::class::Class;
use super::machine::OPEN_FILES_MIN;
use super::{Report, network};
use crate::checks::disk::Place;
use crate::checks::format::bytes;
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
    advice.push(Advice::new("--auto-compaction-mode=periodic", "history goes by its age"));
    advice.push(Advice::new(
        "--auto-compaction-retention=1h",
        "without it all history is kept, until the quota ends all writes (Kubernetes compacts by itself)",
    ));
    advice.push(Advice::new("--snapshot-count=10000", "the default: a checkpoint lists files and copies nothing"));
    if machine.heeds_priorities() {
        let why = "the log goes first where the disk is shared, as with `ionice -c2 -n0`";
        advice.push(Advice::new("--io-priority=best-effort:0", why));
    }
    if machine.swap_bytes > 0 {
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

/// As much as the class is for, if memory and disk have room for it: keys are in memory, and of files up to half may be dead.
fn quota(class: Option<&'static Class>, memory_bytes: u64, free_bytes: Option<u64>) -> Advice {
    let of_class = class.map_or(2 * GIB, |class| class.quota_bytes);
    let (of_memory, of_disk) = (memory_bytes / 2, free_bytes.map_or(u64::MAX, |free| free / 3));
    let bytes_max = of_class.min(of_memory).min(of_disk).max(QUOTA_MIN);
    let quota = bytes_max - bytes_max % QUOTA_MIN;
    let why = match quota {
        quota if quota >= of_class => "as much as is usual for this size",
        _ if of_disk < of_memory => {
            "a third of what is free on the disk: files may be twice as large as what is alive in them"
        }
        _ => "half of the memory",
    };
    Advice::new(format!("--quota-backend-bytes={quota}"), format!("{}: {why}", bytes(quota)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_have_room() {
        let of = |memory, free| quota(None, memory, free).setting;
        assert_eq!(of(8 * GIB, None), "--quota-backend-bytes=2147483648");
        assert_eq!(of(8 * GIB, Some(3 * GIB)), "--quota-backend-bytes=1073741824");
        assert_eq!(of(GIB, Some(30 * GIB)), "--quota-backend-bytes=536870912");
        assert_eq!(of(0, Some(0)), "--quota-backend-bytes=268435456");
        assert!(quota(None, 8 * GIB, Some(4 * GIB)).why.contains("a third"));
    }
}
