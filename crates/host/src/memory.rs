//! How much memory the process takes and may take, and how it is given back.

use std::ffi::{CStr, CString};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::ptr::null_mut;

/// Where control groups are mounted, of version 2 and of version 1.
const GROUPS: &str = "/sys/fs/cgroup";
const MEMORY_GROUPS: &str = "/sys/fs/cgroup/memory";

/// The allocator of the programs, and of the tests of what they are made of (`docs/adr/0017-allocator.md`). Under a fuzzer that of the address
/// sanitizer finds what is used wrongly.
#[cfg(not(fuzzing))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Freed memory that nothing needs for so long goes back to the system.
const DECAY_MS: libc::ssize_t = 1_000;

/// Has freed memory go back to the system soon, also where nothing asks for memory any more. Without this the process keeps what a burst of
/// requests took for as long as it is idle, and a limit that the service manager or the container sets counts it as used. False if the
/// allocator cannot have the thread that does so.
#[must_use]
pub fn return_memory_soon() -> bool {
    let mut is_soon = set(c"arenas.dirty_decay_ms", DECAY_MS);
    // Those of the threads that run already.
    for arena in 0..get::<libc::c_uint>(c"arenas.narenas").unwrap_or(0) {
        if let Ok(name) = CString::new(format!("arena.{arena}.dirty_decay_ms")) {
            // Arenas that no thread has yet refuse it, and begin with that of all.
            set(&name, DECAY_MS);
        }
    }
    if !set(c"background_thread", true) {
        // Else threads would leave to it what nobody does then.
        set(c"background_thread", false);
        is_soon = false;
    }
    is_soon
}

/// Gives memory that was freed back to the system: whole pages, without what threads keep at hand, and without arenas of which the allocator's
/// own thread is giving back at the moment.
pub fn return_freed_memory() {
    // 4096 stands for all arenas (`MALLCTL_ARENAS_ALL`).
    const PURGE: &CStr = c"arena.4096.purge";
    // SAFETY: the name ends with a zero, and nothing is read or written.
    let _ = unsafe { tikv_jemalloc_sys::mallctl(PURGE.as_ptr(), null_mut(), null_mut(), null_mut(), 0) };
}

/// Memory that the allocator has given out, in bytes.
pub fn allocated_bytes() -> u64 {
    // The figures are those of the last epoch.
    set(c"epoch", 1_u64);
    get::<usize>(c"stats.allocated").unwrap_or(0) as u64
}

/// A number that the allocator has under a name; `None` if it has none of this size.
fn get<T: Default>(name: &CStr) -> Option<T> {
    let (mut value, mut len) = (T::default(), size_of::<T>());
    // SAFETY: the name ends with a zero; no more than `len` bytes are written to `value`.
    let code =
        unsafe { tikv_jemalloc_sys::mallctl(name.as_ptr(), (&raw mut value).cast(), &raw mut len, null_mut(), 0) };
    (code == 0).then_some(value)
}

/// Sets a parameter of the allocator. One that it does not know, or a value of another size than its own, changes nothing: false.
fn set<T>(name: &CStr, mut value: T) -> bool {
    // SAFETY: the name ends with a zero; no more than the value is read.
    let code = unsafe {
        tikv_jemalloc_sys::mallctl(name.as_ptr(), null_mut(), null_mut(), (&raw mut value).cast(), size_of::<T>())
    };
    code == 0
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

/// What clients may have a server hold of requests that are not whole, in bytes; and as much again of the headers of open streams.
pub fn incomplete_bytes_max() -> u64 {
    incomplete_bytes_of(memory_limit_bytes())
}

/// 256 MiB, or less where that would be much of the memory.
fn incomplete_bytes_of(limit_bytes: Option<u64>) -> u64 {
    limit_bytes.map_or(256 << 20, |limit| (limit / 8).clamp(32 << 20, 256 << 20))
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
    fn requests_that_are_not_whole_take_a_small_part_of_the_memory() {
        let of = [None, Some(24 << 30), Some(1 << 30), Some(1)].map(incomplete_bytes_of);
        assert_eq!(of, [256 << 20, 256 << 20, 128 << 20, 32 << 20]);
    }

    /// One test for all that counts or sets, since each would find what the others take: the allocator gives nothing back of an arena while
    /// its own thread is at it.
    #[test]
    fn the_process_has_memory_and_a_limit_and_gives_it_back() {
        let limit = memory_limit_bytes().expect("a limit");
        let (before, given_out) = (anonymous_bytes(), allocated_bytes());
        assert!(before > 0 && before < limit, "{before} of {limit}");
        let held: Vec<Vec<u8>> = (0..1_024).map(|_| vec![1; 64 << 10]).collect();
        let with = anonymous_bytes();
        assert!(with >= before + (60 << 20), "{before}, then {with}");
        assert!(
            given_out > 0 && allocated_bytes() >= given_out + (60 << 20),
            "{given_out}, then {}",
            allocated_bytes()
        );
        drop(held);
        return_freed_memory();
        let after = anonymous_bytes();
        assert!(after < with - (32 << 20), "{with}, then {after}");
        assert!(allocated_bytes() < given_out + (32 << 20));
        the_allocator_takes_its_parameters();
    }

    fn the_allocator_takes_its_parameters() {
        // This thread and the one that waits for it have arenas already.
        assert!(return_memory_soon());
        assert_eq!(get(c"arenas.dirty_decay_ms"), Some(DECAY_MS));
        let own: libc::c_uint = get(c"thread.arena").expect("an arena");
        for arena in [0, own] {
            let name = CString::new(format!("arena.{arena}.dirty_decay_ms")).expect("a name");
            assert_eq!(get(&name), Some(DECAY_MS), "arena {arena}");
        }
        assert_eq!(get(c"background_thread"), Some(true));
        set(c"epoch", 1_u64);
        let threads: usize = get(c"stats.background_thread.num_threads").expect("a number");
        assert!(threads > 0, "a thread that gives memory back");
        assert!(!set(c"no.such.name", 1_u64) && !set(c"background_thread", 1_u64));
    }

    #[test]
    fn lines_without_a_number_are_zero() {
        assert_eq!(kibibytes("Name:\tx\nRssAnon:\t     12 kB\n", "RssAnon:"), 12 << 10);
        assert_eq!(kibibytes("RssAnon: x kB", "RssAnon:"), 0);
        assert_eq!(kibibytes("", "RssAnon:"), 0);
        assert_eq!(kibibytes("RssAnon: 18446744073709551615 kB", "RssAnon:"), u64::MAX);
    }
}
