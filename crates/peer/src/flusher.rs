//! One thread for all outgoing streams: it continues a write when a socket was full, keeps idle streams alive, and notices when a peer
//! closes its connection.

use crate::codec::Kind;
use crate::peer::Peer;
use crate::shared::Shared;
use crate::timeouts::after;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often stalled streams are checked.
const STALL_CHECK: Duration = Duration::from_millis(500);

/// Starts the thread.
pub(crate) fn start(shared: Arc<Shared>) -> io::Result<()> {
    std::thread::Builder::new().name("peer-flush".into()).spawn(move || run(&shared)).map(drop)
}

/// A socket for which the flusher waits.
struct Waiting {
    peer: Arc<Peer>,
    kind: Kind,
    serial: u64,
}

fn run(shared: &Shared) {
    let mut sockets: Vec<libc::pollfd> = Vec::new();
    let mut waiting: Vec<Waiting> = Vec::new();
    // A third of the time after which the reader gives up.
    let heartbeat = shared.timeouts.read.checked_div(3).unwrap_or_default();
    while !shared.is_stopping() {
        sockets.clear();
        waiting.clear();
        sockets.push(libc::pollfd { fd: shared.flusher.descriptor(), events: libc::POLLIN, revents: 0 });
        let now = Instant::now();
        let mut wake_at = now.checked_add(heartbeat).unwrap_or(now);
        for peer in shared.peers() {
            peer.each_link(shared, |kind, link| {
                if link.idle_until(heartbeat) <= now && !link.is_stalled() {
                    link.push_heartbeat();
                    if let Err(error) = link.flush() {
                        return Some(error);
                    }
                }
                let mut events = libc::POLLRDHUP;
                match link.stalled_for(now) {
                    Some(stalled) if stalled > shared.timeouts.write => return Some(io::ErrorKind::TimedOut.into()),
                    Some(_) => {
                        events |= libc::POLLOUT;
                        wake_at = wake_at.min(after(STALL_CHECK));
                    }
                    None => wake_at = wake_at.min(link.idle_until(heartbeat)),
                }
                sockets.push(libc::pollfd { fd: link.descriptor(), events, revents: 0 });
                waiting.push(Waiting { peer: peer.clone(), kind, serial: link.serial });
                None
            });
        }
        wait(&mut sockets, wake_at.saturating_duration_since(now));
        shared.flusher.clear();
        for (socket, waiting) in sockets.iter().skip(1).zip(&waiting) {
            if socket.revents != 0 {
                waiting.peer.each_link(shared, |kind, link| {
                    // By now the descriptor may belong to another stream.
                    let same = kind == waiting.kind && link.serial == waiting.serial;
                    if same { serve(socket.revents, link) } else { None }
                });
            }
        }
    }
}

/// Handles the events of a socket; returns the error if the socket is at its end.
fn serve(events: libc::c_short, link: &mut crate::outgoing::Outgoing) -> Option<io::Error> {
    if events & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0 {
        return Some(io::Error::new(io::ErrorKind::UnexpectedEof, "the peer has closed the connection"));
    }
    link.flush().err()
}

/// Waits until a socket is ready, another thread wakes this one, or the time is over.
fn wait(sockets: &mut [libc::pollfd], time: Duration) {
    // Rounded up: a wait that ends too early would be repeated at once.
    let time_ms = i32::try_from(time.as_millis().saturating_add(1)).unwrap_or(i32::MAX);
    // SAFETY: the slice is valid for its length. An interrupted call counts as one whose time is over.
    let ready = unsafe { libc::poll(sockets.as_mut_ptr(), sockets.len() as libc::nfds_t, time_ms) };
    if ready < 0 {
        for socket in sockets {
            socket.revents = 0;
        }
    }
}
