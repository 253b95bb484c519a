//! What all connections together may take, and what is said when there is no more.

use std::io;
use telemetry::logging::{self, Pace, Value};

/// Descriptors that are not for connections: the log, addresses that are tried beside each other, probes.
const FILES_RESERVED: u64 = 64;
/// Descriptors of a worker: what it waits with for its sockets, and what wakes it.
const FILES_OF_WORKER: u64 = 4;
/// Descriptors of a member: a lookup of its name, and a probe.
const FILES_OF_MEMBER: u64 = 4;
/// Bytes that may wait in this process for receivers that do not take them; what senders send beyond waits in their sockets.
const HELD_BYTES_MAX: usize = 64 << 20;
/// Descriptors of a connection: the client's socket and the member's.
const FILES_OF_CONNECTION: u64 = 2;
/// Descriptors of a pipe: its two ends.
const FILES_OF_PIPE: u64 = 2;

/// The limits of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Connections that may be open; more are closed as soon as they are accepted.
    pub(crate) connections: usize,
    /// Pipes for directions that have much to move.
    pub(crate) pipes: usize,
    /// Bytes that may wait in this process, those in pipes included.
    pub(crate) held_bytes: usize,
}

impl Limits {
    /// The limits of a process that may have `files` open: what `workers` and `members` leave of them is a quarter for pipes, the rest for
    /// connections.
    pub(crate) fn of(files: u64, workers: usize, members: usize) -> Limits {
        let of = |count: usize, each: u64| u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(each);
        let others = of(workers, FILES_OF_WORKER).saturating_add(of(members, FILES_OF_MEMBER));
        let files = files.saturating_sub(FILES_RESERVED).saturating_sub(others);
        let pipes = files / 4 / FILES_OF_PIPE;
        let connections = (files / 4).saturating_mul(3) / FILES_OF_CONNECTION;
        let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        Limits { connections: number(connections.max(1)), pipes: number(pipes), held_bytes: HELD_BYTES_MAX }
    }

    /// The share of one of `workers` in pipes and bytes.
    pub(crate) fn share(&self, workers: usize) -> (usize, usize) {
        let of = |all: usize| all.checked_div(workers).unwrap_or(all);
        (of(self.pipes), of(self.held_bytes))
    }
}

/// Whether an error says that this host lacks something, whatever the other side does: descriptors, memory, ports.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let lacking = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS, libc::EAGAIN, libc::EADDRNOTAVAIL];
    error.raw_os_error().is_some_and(|code| lacking.contains(&code))
}

/// Says in the log, every now and then, that a client was turned away.
pub(crate) fn turned_away(why: &dyn std::fmt::Display) {
    static PACE: Pace = Pace::new();
    if let Some(left_out) = PACE.line() {
        let fields = [("error", Value::Shown(why)), ("lines-left-out", left_out.into())];
        logging::warn("turned client connections away", &fields);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_pipes_fit_into_the_files() {
        for files in [0, 1, 64, 65, 256, 1024, 1 << 20, u64::MAX] {
            for (workers, members) in [(1, 1), (80, 3), (usize::MAX, usize::MAX)] {
                let limits = Limits::of(files, workers, members);
                let others = 64 + 4 * (workers as u128 + members as u128);
                let used = (limits.connections as u128) * 2 + (limits.pipes as u128) * 2 + others;
                assert!(
                    limits.connections >= 1 && (used <= u128::from(files) || limits.connections == 1),
                    "{limits:?}"
                );
            }
        }
        let limits = Limits::of(1024, 2, 3);
        assert_eq!(limits, Limits { connections: 352, pipes: 117, held_bytes: HELD_BYTES_MAX });
        assert_eq!(limits.share(2), (58, HELD_BYTES_MAX / 2));
    }
}
