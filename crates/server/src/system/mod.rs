//! The server's use of the operating system: descriptors, signals.

mod disk_priority;
pub(crate) mod file_stamp;
mod memory;
pub(crate) mod socket_file;
pub(crate) mod thread_time;

pub(crate) use disk_priority::{check_disk_priority, set_disk_priority};
pub(crate) use host::{connections_max, notify, open_files_limit, raise_open_files};
pub(crate) use memory::lock_memory;

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Connections that the listeners of `--listen-metrics-urls` may have beside those: probes and scrapers are few, and both ports together
/// must leave descriptors for the files.
pub(crate) fn monitoring_connections_max() -> u64 {
    (open_files_limit() / 16).clamp(1, 1024)
}

/// The command line as it may be shown to others: without passwords. Words that are no text are shown as far as they are.
pub(crate) fn command_line() -> Vec<String> {
    crate::config::command_line(std::env::args_os().map(|word| word.to_string_lossy().into_owned()))
}

/// What memory the process takes, in bytes.
pub(crate) struct Memory {
    /// Address space.
    pub(crate) virtual_bytes: u64,
    /// What of it is in memory.
    pub(crate) resident_bytes: u64,
    /// What the allocator has given out.
    pub(crate) allocated_bytes: u64,
}

/// What memory the process takes. What cannot be found out is zero.
pub(crate) fn memory() -> Memory {
    // SAFETY: no pointers are passed.
    let page_bytes = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0);
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = text.split(' ').map(|word| word.parse::<u64>().unwrap_or(0) * page_bytes);
    let (virtual_bytes, resident_bytes) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    Memory { virtual_bytes, resident_bytes, allocated_bytes: host::allocated_bytes() }
}

/// Starts a child that is asked to end when this process dies, and that Ctrl-C in the terminal does not reach by itself.
pub(crate) fn spawn_dependent(command: &mut Command) -> io::Result<Child> {
    command.process_group(0);
    // SAFETY: between fork and exec only a system call is made, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    command.spawn()
}

/// Sends a signal to a child of this process. One that has ended is none any more.
pub(crate) fn signal(pid: u32, signal: i32) {
    // SAFETY: no pointers are passed.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}

/// Whether this process ignores a signal, as a parent may have it do.
pub(crate) fn is_ignored(signal: i32) -> bool {
    // SAFETY: the action is plain data, and all pointers are valid for the call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Why a member ends.
pub(crate) enum End {
    /// A signal; the process ends by it.
    Signal(Signals, i32),
    /// The cluster has removed the member.
    Removed,
    /// The others belong to another cluster; the text says so.
    Estranged(String),
}

/// SIGINT and SIGTERM, which end a process, and others, held back from every thread and waited for by one.
pub(crate) struct Signals {
    set: libc::sigset_t,
}

impl Signals {
    /// Holds the signals back in this thread and all it starts; to be called before any is started.
    pub(crate) fn block(others: &[i32]) -> io::Result<Signals> {
        // SAFETY: a signal set is plain data, and all pointers are valid for the calls.
        let set = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGINT);
            libc::sigaddset(&mut set, libc::SIGTERM);
            for other in others {
                libc::sigaddset(&mut set, *other);
            }
            set
        };
        // SAFETY: as above.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) } {
            0 => Ok(Signals { set }),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Waits for one.
    pub(crate) fn wait(&self) -> i32 {
        let mut signal = 0;
        // SAFETY: both pointers are valid for the call. It fails only for a set that is invalid.
        while unsafe { libc::sigwait(&self.set, &mut signal) } != 0 {}
        signal
    }

    /// Ends the process by the signal, so that the parent process sees why it ended.
    pub(crate) fn reraise(&self, signal: i32) -> ! {
        // SAFETY: the default action of the signal ends the process; all pointers are valid for the calls.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &self.set, std::ptr::null_mut());
            libc::raise(signal);
        }
        std::process::exit(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_known() {
        assert!(!is_ignored(libc::SIGWINCH));
        // SAFETY: no handler is run, and no other test is about this signal.
        unsafe { libc::signal(libc::SIGWINCH, libc::SIG_IGN) };
        assert!(is_ignored(libc::SIGWINCH));
        // SAFETY: as above.
        unsafe { libc::signal(libc::SIGWINCH, libc::SIG_DFL) };
    }
}
