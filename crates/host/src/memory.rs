//! How much memory the process takes and may take, and how it is given back.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// Where control groups are mounted, of version 2 and of version 1.
const GROUPS: &str = "/sys/fs/cgroup";
const MEMORY_GROUPS: &str = "/sys/fs/cgroup/memory";

/// From this size on a piece of memory goes back to the system as soon as it is not used any more.
#[cfg(target_env = "gnu")]
const RETURNED_BYTES_MIN: libc::c_int = 256 << 10;

/// Has large pieces of memory go back to the system at once. Without this glibc keeps what a burst of large requests took, up to its
/// peak: a limit that the service manager or the container sets would count it as used.
pub fn return_large_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointers are passed. It fails only for a value out of range, which changes nothing.
    let _ = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, RETURNED_BYTES_MIN) };
}

/// Gives memory that was freed back to the system. Until it is done, which can take as long as a second for gigabytes, other threads may
/// wait for memory.
pub fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointers are passed.
    let _ = unsafe { libc::malloc_trim(0) };
}

/// The memory of the process that belongs to no file, swapped out or not, in bytes: what the system cannot take back. 0 if the system
/// does not say.
pub fn anonymous_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ["RssAnon:", "RssShmem:", "VmSwap:"].into_iter().map(|name| kibibytes(&status, name)).fold(0, u64::saturating_add)
}

/// The number of a line such as `RssAnon:     123 kB`, in bytes.
fn kibibytes(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0).saturating_mul(1024)
}

/// The most memory that the process may take: that of the machine, or what the control groups that it is in allow, if that is less. `None` if
/// the system does not say.
pub fn memory_limit_bytes() -> Option<u64> {
    // SAFETY: no pointers are passed.
    let (pages, page) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let machine =
        u64::try_from(pages).ok().zip(u64::try_from(page).ok()).map(|(pages, page)| pages.saturating_mul(page));
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups =
        limit_files(&own).into_iter().filter_map(|file| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok());
    machine.into_iter().chain(groups).filter(|bytes| *bytes > 0).min()
}

/// The files with the limits of the control groups that `/proc/self/cgroup` names, and of those around them. In a container the path may be
/// that outside of it, and only the outermost file is there.
fn limit_files(own: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in own.lines() {
        // hierarchy:controllers:path
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (mount, name) = match controllers {
            "" => (GROUPS, "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                (MEMORY_GROUPS, "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // Groups outside of the mounted ones begin with `..`.
        let inner =
            Path::new(path).components().filter(|part| matches!(part, Component::Normal(_))).collect::<PathBuf>();
        files.extend(inner.ancestors().map(|group| Path::new(mount).join(group).join(name)));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_groups_are_found() {
        let files = |own: &str| limit_files(own).iter().map(|file| file.display().to_string()).collect::<Vec<_>>();
        assert_eq!(
            files("0::/a.slice/b.service\n"),
            [
                "/sys/fs/cgroup/a.slice/b.service/memory.max",
                "/sys/fs/cgroup/a.slice/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        assert_eq!(files("0::/\n"), ["/sys/fs/cgroup/memory.max"]);
        assert_eq!(files("0::/../..\n"), ["/sys/fs/cgroup/memory.max"]);
        assert_eq!(
            files("9:cpu,cpuacct:/x\n4:memory:/box\n1:name=systemd:/x\n"),
            ["/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        );
        assert_eq!(files(""), [""; 0]);
        assert_eq!(files("nothing of the kind"), [""; 0]);
    }

    #[test]
    fn the_process_has_memory_and_a_limit() {
        let limit = memory_limit_bytes().expect("a limit");
        let before = anonymous_bytes();
        assert!(before > 0 && before < limit, "{before} of {limit}");
        let held = vec![1_u8; 64 << 20];
        let with = anonymous_bytes();
        assert!(with >= before + (60 << 20), "{before}, then {with}");
        drop(held);
        return_freed_memory();
        assert!(anonymous_bytes() < with - (32 << 20));
    }

    #[test]
    fn lines_without_a_number_are_zero() {
        assert_eq!(kibibytes("Name:\tx\nRssAnon:\t     12 kB\n", "RssAnon:"), 12 << 10);
        assert_eq!(kibibytes("RssAnon: x kB", "RssAnon:"), 0);
        assert_eq!(kibibytes("", "RssAnon:"), 0);
        assert_eq!(kibibytes("RssAnon: 18446744073709551615 kB", "RssAnon:"), u64::MAX);
    }
}
