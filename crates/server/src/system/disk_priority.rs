//! The disk priority of a thread.

use crate::config::IoPriority;
use std::io;
use std::thread::JoinHandle;

/// `ioprio_set(2)`, which libc has no names for.
const WHO_PROCESS: libc::c_long = 1;
const THIS_THREAD: libc::c_long = 0;
const CLASS_SHIFT: u32 = 13;

fn encode(priority: IoPriority) -> libc::c_long {
    let (class, level) = match priority {
        IoPriority::Realtime(level) => (1, level),
        IoPriority::BestEffort(level) => (2, level),
        IoPriority::Idle => (3, 0),
    };
    (class << CLASS_SHIFT) | libc::c_long::from(level)
}

/// Sets the priority of this thread, and of threads that it starts from now on.
pub(crate) fn set_disk_priority(priority: IoPriority) -> io::Result<()> {
    // SAFETY: no pointers are passed.
    match unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, THIS_THREAD, encode(priority)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the priority may be set at all: finds out on a thread of its own.
pub(crate) fn check_disk_priority(priority: IoPriority) -> Result<(), String> {
    let attempt = std::thread::Builder::new().name("io-priority".into()).spawn(move || set_disk_priority(priority));
    match attempt.map(JoinHandle::join) {
        Ok(Ok(Ok(()))) => Ok(()),
        Err(error) => Err(format!("cannot set --io-priority: {error}")),
        Ok(Ok(Err(error))) => Err(format!("cannot set --io-priority: {error} (the class realtime needs CAP_SYS_NICE)")),
        Ok(Err(_)) => Err("cannot set --io-priority".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_what_was_set() {
        let got = std::thread::spawn(|| {
            set_disk_priority(IoPriority::BestEffort(1)).expect("allowed to everyone");
            // SAFETY: no pointers are passed.
            unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, THIS_THREAD) }
        });
        assert_eq!(got.join().expect("no panic"), encode(IoPriority::BestEffort(1)));
    }
}
