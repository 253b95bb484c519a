//! Processors, memory and limits of this machine, as far as a process here may use them.

use super::finding::Finding;
use crate::checks::format::{Grade, bytes};
use std::path::Path;

/// What the machine has.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    pub(super) processors: u64,
    /// What a process may take: of a container, what its group may. None: the kernel does not say.
    pub(super) memory_bytes: Option<u64>,
    pub(super) available_bytes: Option<u64>,
    pub(super) swap_bytes: Option<u64>,
    /// Open files: what a process has, and what it may raise that to.
    pub(super) open_files: (u64, u64),
    /// The mode of transparent huge pages.
    pub(super) huge_pages: Option<String>,
    /// What puts requests to the disk in order.
    pub(super) scheduler: Option<String>,
    /// Class of the I/O priority that members started from here would have.
    pub(super) io_class: Option<u32>,
}

/// Members raise the soft limit themselves. Of the descriptors, a quarter is kept for files.
pub(super) const OPEN_FILES_MIN: u64 = 65_536;
/// What etcd's guide begins with is eight times as much.
const MEMORY_MIN: u64 = 1 << 30;
/// Groups of the first kind have a number even where there is no limit: one that is larger than all memory.
const NO_LIMIT: u64 = 1 << 60;
/// The class of `ioprio_get(2)` whose requests wait for all others.
const IO_CLASS_IDLE: u32 = 3;

impl Machine {
    /// Looks at everything; `dir` is where the data is to be.
    pub(super) fn look(dir: Option<&Path>) -> Machine {
        let meminfo = read("/proc/meminfo");
        let line = |name: &str| kilobytes(&meminfo, name);
        let limit = group_limit();
        let limited = |bytes: Option<u64>| [bytes, limit].into_iter().flatten().min();
        Machine {
            processors: std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
            memory_bytes: limited(line("MemTotal")),
            available_bytes: line("MemAvailable").and_then(|bytes| limited(Some(bytes))),
            swap_bytes: line("SwapTotal"),
            open_files: open_files(),
            huge_pages: selected(&read("/sys/kernel/mm/transparent_hugepage/enabled")),
            scheduler: dir.and_then(scheduler),
            io_class: io_class(),
        }
    }

    /// Whether I/O priorities make a difference.
    pub(super) fn heeds_priorities(&self) -> bool {
        matches!(self.scheduler.as_deref(), Some("bfq" | "mq-deadline"))
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Bytes in a line of `/proc/meminfo`.
fn kilobytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The word in brackets, which is how the kernel marks the one of several that is in force.
fn selected(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_string())
}

/// The memory that the groups of this process may take.
fn group_limit() -> Option<u64> {
    let groups = read("/proc/self/cgroup");
    let limits = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            list if list.split(',').any(|one| one == "memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => return Vec::new(),
        };
        // A group has no more than those above it; in a container it is the root itself.
        let path = path.trim_start_matches('/');
        Path::new(path).ancestors().map(|group| Path::new(root).join(group).join(file)).collect()
    });
    let limits = limits.filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok());
    limits.filter(|limit| *limit < NO_LIMIT).min()
}

fn open_files() -> (u64, u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is valid for the call, which leaves zeros where it fails.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    (limit.rlim_cur, limit.rlim_max)
}

/// What orders the requests to the disk that `dir` lies on.
fn scheduler(dir: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let device = std::fs::metadata(dir).ok()?.dev();
    let device = format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device));
    // A partition leaves that to its disk.
    let paths = [format!("{device}/queue/scheduler"), format!("{device}/../queue/scheduler")];
    paths.iter().find_map(|path| selected(&read(path)))
}

/// `ioprio_get(2)`, which libc has no names for.
fn io_class() -> Option<u32> {
    const WHO_PROCESS: libc::c_long = 1;
    const THIS_THREAD: libc::c_long = 0;
    const CLASS_SHIFT: u32 = 13;
    // SAFETY: no pointers are passed.
    let found = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, THIS_THREAD) };
    u32::try_from(found).ok().map(|priority| priority >> CLASS_SHIFT)
}

/// The findings about it.
pub(super) fn findings(machine: &Machine) -> Vec<Finding> {
    vec![processors(machine), memory(machine), huge_pages(machine), files(machine), priority(machine)]
}

fn processors(machine: &Machine) -> Finding {
    match machine.processors {
        1 => Finding::new(
            "processors",
            Grade::Warn,
            "only 1: requests, log and peers share it, and a burst of one delays heartbeats",
        ),
        count => Finding::new("processors", Grade::Pass, count.to_string()),
    }
}

fn memory(machine: &Machine) -> Finding {
    let Some(all) = machine.memory_bytes else {
        return Finding::new("memory", Grade::Info, "how much there is, is not known: /proc/meminfo does not say");
    };
    let available = machine.available_bytes.map(|available| format!(", {} of it available", bytes(available)));
    let amount = bytes(all) + &available.unwrap_or_default();
    if all < MEMORY_MIN {
        return Finding::new(
            "memory",
            Grade::Warn,
            format!("{amount}, less than {}: all keys are kept in memory, so this is for a trial", bytes(MEMORY_MIN)),
        );
    }
    match machine.swap_bytes {
        None => Finding::new("memory", Grade::Pass, amount),
        Some(0) => Finding::new("memory", Grade::Pass, format!("{amount}, no swap")),
        Some(swap) => {
            let text = format!("{amount}, {} of swap: a member that is swapped out misses heartbeats", bytes(swap));
            Finding::new("memory", Grade::Warn, text)
        }
    }
}

fn huge_pages(machine: &Machine) -> Finding {
    match machine.huge_pages.as_deref() {
        Some("always") => {
            let text = "transparent huge pages `always`: memory that is given back in small pieces may stay taken; `madvise` is better";
            Finding::new("huge pages", Grade::Info, text)
        }
        Some(mode) => Finding::new("huge pages", Grade::Pass, format!("transparent huge pages `{mode}`")),
        None => Finding::new("huge pages", Grade::Info, "the kernel says nothing about transparent huge pages"),
    }
}

fn files(machine: &Machine) -> Finding {
    let (soft, hard) = machine.open_files;
    let shown = if hard == libc::RLIM_INFINITY { "any number".to_string() } else { hard.to_string() };
    if hard < OPEN_FILES_MIN {
        let connections = hard - hard / 4;
        let text = format!(
            "{shown} may be open, and {OPEN_FILES_MIN} are usual: a member takes {connections} connections then, and refuses further ones"
        );
        return Finding::new("open files", Grade::Warn, text);
    }
    let raised = if soft < hard { format!(", which a member raises its limit of {soft} to") } else { String::new() };
    Finding::new("open files", Grade::Pass, format!("{shown} may be open{raised}"))
}

fn priority(machine: &Machine) -> Finding {
    if machine.io_class == Some(IO_CLASS_IDLE) {
        let text = "this shell has the class `idle`: a member started from here would wait for everybody else";
        return Finding::new("I/O priority", Grade::Warn, text);
    }
    let text = match machine.scheduler.as_deref() {
        Some(name) if machine.heeds_priorities() => {
            format!("the disk's scheduler `{name}` heeds priorities: --io-priority helps the log")
        }
        Some(name) => format!("the disk's scheduler `{name}` heeds no priorities: --io-priority would change nothing"),
        None => "what orders the requests to the disk is not known".into(),
    };
    Finding::new("I/O priority", Grade::Info, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_read() {
        let meminfo = "MemTotal:       24684096 kB\nMemAvailable:   23910440 kB\nSwapTotal:  0 kB\n";
        assert_eq!(kilobytes(meminfo, "MemTotal"), Some(24_684_096 << 10));
        assert_eq!((kilobytes(meminfo, "Mem"), kilobytes(meminfo, "SwapTotal")), (None, Some(0)));
        assert_eq!(selected("always [madvise] never\n"), Some("madvise".into()));
        assert_eq!((selected("none"), selected("")), (None, None));
    }

    #[test]
    fn this_machine_has_something_of_everything() {
        let machine = Machine::look(Some(Path::new("/")));
        assert!(machine.processors > 0 && machine.memory_bytes > Some(0) && machine.open_files.1 > 0, "{machine:?}");
        assert!(machine.available_bytes <= machine.memory_bytes);
    }

    #[test]
    fn what_is_too_little_is_told() {
        let good =
            Machine { processors: 2, memory_bytes: Some(8 << 30), open_files: (1024, 1 << 20), ..Machine::default() };
        assert!(findings(&good).iter().all(|finding| finding.grade != Grade::Warn), "{:?}", findings(&good));
        let bad =
            Machine { processors: 1, memory_bytes: Some(1 << 29), open_files: (1024, 4096), io_class: Some(3), ..good };
        let warned = findings(&bad).iter().filter(|finding| finding.grade == Grade::Warn).count();
        assert_eq!(warned, 4);
        let says_why = |finding: &Finding| finding.grade != Grade::Warn || finding.text.contains(": ");
        assert!(findings(&bad).iter().all(says_why), "{:?}", findings(&bad));
        let unknown = memory(&Machine { memory_bytes: None, available_bytes: None, swap_bytes: None, ..bad.clone() });
        assert_eq!(unknown.grade, Grade::Info, "{unknown:?}");
        assert!(!unknown.text.contains("0 B"), "{unknown:?}");
        assert!(files(&bad).text.contains("takes 3072 connections then"), "{:?}", files(&bad));
    }
}
