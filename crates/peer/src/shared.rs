//! State that all threads of this crate share.

use crate::connector::Connector;
use crate::follow::Followers;
use crate::handler::{Handler, Known};
use crate::identity::Identity;
use crate::metrics::{Counters, Ledger};
use crate::peer::Peer;
use crate::places::Places;
use crate::snapshot::{Exports, Receiving};
use crate::timeouts::{Timeouts, after};
use crate::waker::Waker;
use crate::{pipeline, reader};
use api::raftpb::Message;
use contain::lock;
use http::HeaderMap;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use telemetry::logging::{self, Value};

/// Limit of peers that are known only from their requests.
const REMOTES_MAX: usize = 16;
/// A sender that has named itself once must do so again within this time, or it may lose its place: so invented senders
/// cannot keep all places between two heartbeats.
const REMOTE_TRIAL: Duration = Duration::from_secs(1);
/// A sender that was silent for this long may lose its place to another. A running member sends a message with every
/// heartbeat.
const REMOTE_SILENCE: Duration = Duration::from_secs(10);

pub(crate) struct Shared {
    pub(crate) identity: Identity,
    pub(crate) connector: Connector,
    /// The headers of every request to a peer.
    pub(crate) headers: HeaderMap,
    pub(crate) timeouts: Timeouts,
    pub(crate) message_bytes_max: usize,
    pub(crate) handler: Arc<dyn Handler>,
    /// Lowers the priority of the calling thread, which does only background work.
    pub(crate) yield_cpu: fn(),
    pub(crate) flusher: Waker,
    pub(crate) ledger: Ledger,
    pub(crate) exports: Exports,
    pub(crate) receiving: Receiving,
    /// The observers that follow this process.
    pub(crate) followers: Arc<Followers>,
    /// The places of connections that others have dialled and that are not streams.
    pub(crate) places: Arc<Places>,
    /// Bytes of bodies that are being received from members, and from non-members.
    body_bytes: [AtomicUsize; 2],
    peers: RwLock<BTreeMap<u64, Arc<Peer>>>,
    serial: AtomicU64,
    removal_told: AtomicBool,
    stopping: (Mutex<bool>, Condvar),
}

impl Shared {
    pub(crate) fn new(
        identity: Identity,
        connector: Connector,
        timeouts: Timeouts,
        message_bytes_max: usize,
        yield_cpu: fn(),
        handler: Arc<dyn Handler>,
    ) -> io::Result<Shared> {
        Ok(Shared {
            headers: identity.headers(),
            identity,
            connector,
            timeouts,
            message_bytes_max,
            yield_cpu,
            handler,
            flusher: Waker::new()?,
            ledger: Ledger::default(),
            exports: Exports::default(),
            receiving: Receiving::default(),
            followers: Arc::default(),
            places: Arc::default(),
            body_bytes: Default::default(),
            peers: RwLock::new(BTreeMap::new()),
            serial: AtomicU64::new(0),
            removal_told: AtomicBool::new(false),
            stopping: (Mutex::new(false), Condvar::new()),
        })
    }

    /// A new number for a stream.
    pub(crate) fn next_serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }

    /// Bytes of bodies that are being received from members, or from non-members.
    pub(crate) fn body_bytes(&self, of_members: bool) -> &AtomicUsize {
        let [members, non_members] = &self.body_bytes;
        if of_members { members } else { non_members }
    }

    pub(crate) fn peer(&self, id: u64) -> Option<Arc<Peer>> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    pub(crate) fn peers(&self) -> Vec<Arc<Peer>> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The counters of a peer. Those of a sender that never was a member are shown once it becomes one.
    pub(crate) fn counters(&self, id: u64) -> Arc<Counters> {
        self.peer(id).map_or_else(|| self.ledger.known(id), |peer| peer.counters.clone())
    }

    pub(crate) fn set(self: &Arc<Self>, id: u64, urls: Vec<String>) {
        if id == self.identity.member_id || self.is_stopping() {
            return;
        }
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        let (peer, is_new) = match peers.get(&id) {
            Some(peer) => {
                if peer.urls.replace(urls) {
                    logging::info(
                        "updated remote peer",
                        &[
                            ("remote-peer-id", Value::Shown(&format_args!("{id:x}"))),
                            ("remote-peer-urls", (&peer.urls.list()).into()),
                        ],
                    );
                }
                self.ledger.adopt(id, &peer.counters);
                (peer.clone(), !peer.is_dialled.swap(true, Ordering::SeqCst))
            }
            None => {
                let peer = self.begin(id, urls, true);
                peers.insert(id, peer.clone());
                (peer, true)
            }
        };
        drop(peers);
        if is_new {
            logging::info(
                "added remote peer",
                &[
                    ("remote-peer-id", Value::Shown(&format_args!("{id:x}"))),
                    ("remote-peer-urls", (&peer.urls.list()).into()),
                ],
            );
            reader::start(self, &peer);
        }
    }

    /// Remembers a sender that this member does not know, so that it can be answered. That happens after a restart from
    /// an old state, or when this member has not heard of the sender yet.
    pub(crate) fn set_remote(self: &Arc<Self>, id: u64, urls: &str) {
        if let Some(peer) = self.peer(id) {
            return peer.note_request();
        }
        let may_be = id != 0 && id != self.identity.member_id && self.handler.knows(id) != Known::Removed;
        if !may_be || self.is_stopping() {
            return;
        }
        let urls: Vec<String> = urls.split(',').map(str::to_string).collect();
        if urls.iter().any(|url| crate::address::Address::parse(url).is_err()) {
            return;
        }
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        if peers.contains_key(&id) {
            return;
        }
        let evicted = match place_for(&peers) {
            Place::Free => None,
            Place::Of(other) => peers.remove(&other),
            Place::None => return,
        };
        logging::info(
            "added new remote peer",
            &[
                ("remote-peer-id", Value::Shown(&format_args!("{id:x}"))),
                ("remote-peer-urls", Value::Shown(&urls.join(","))),
            ],
        );
        peers.insert(id, self.begin(id, urls, false));
        drop(peers);
        if let Some(other) = evicted {
            other.stop();
        }
    }

    fn begin(self: &Arc<Self>, id: u64, urls: Vec<String>, is_dialled: bool) -> Arc<Peer> {
        // A sender that merely names itself gets no counters, because counters stay forever.
        let counters = if is_dialled { self.ledger.of(id) } else { self.ledger.known(id) };
        let peer = Arc::new(Peer::new(id, urls, is_dialled, counters));
        pipeline::start(self, &peer);
        peer
    }

    pub(crate) fn remove(&self, id: u64) {
        let peer = self.peers.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        if let Some(peer) = peer {
            peer.stop();
            // The flusher still waits for the sockets that were just closed.
            self.flusher.wake();
            logging::info("removed remote peer", &[("removed-remote-peer-id", Value::Shown(&format_args!("{id:x}")))]);
        }
    }

    pub(crate) fn send(&self, messages: &[Message]) {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        for peer in peers.values() {
            peer.send(self, messages);
        }
    }

    /// Passes on, once, that this member was removed, as a configured peer has said. A sender that has merely named
    /// itself is not believed: anyone who reaches the port can be one, and this ends the member.
    pub(crate) fn tell_removed(&self, by: &Peer) {
        if by.is_dialled.load(Ordering::SeqCst) && !self.removal_told.swap(true, Ordering::SeqCst) {
            logging::warn(
                "a peer says that this member has been removed from the cluster",
                &[("remote-peer-id", Value::Shown(&format_args!("{:x}", by.id)))],
            );
            self.handler.removed();
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *lock(&self.stopping.0)
    }

    pub(crate) fn stop(&self) {
        *lock(&self.stopping.0) = true;
        self.stopping.1.notify_all();
        for peer in self.peers() {
            peer.stop();
        }
        self.followers.end_all();
        self.flusher.wake();
    }

    /// Sleeps for `time`, or until [`Shared::stop`].
    pub(crate) fn pause(&self, time: Duration) {
        let deadline = after(time);
        let mut stopping = lock(&self.stopping.0);
        while !*stopping {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            stopping = self.stopping.1.wait_timeout(stopping, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The place for a sender that is no member.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Free,
    /// The place of this sender, which loses it.
    Of(u64),
    None,
}

/// Chooses a place. If all are taken, a sender of a single request loses its place first, then one that has been
/// silent.
fn place_for(peers: &BTreeMap<u64, Arc<Peer>>) -> Place {
    let remotes = || peers.values().filter(|peer| !peer.is_dialled.load(Ordering::SeqCst));
    if remotes().count() < REMOTES_MAX {
        return Place::Free;
    }
    let may_go = remotes().filter_map(|peer| {
        let (requests, last) = peer.requests();
        let is_single = requests <= 1;
        let patience = if is_single { REMOTE_TRIAL } else { REMOTE_SILENCE };
        (last.elapsed() >= patience).then_some((!is_single, last, peer.id))
    });
    may_go.min().map_or(Place::None, |(.., id)| Place::Of(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Peers as `(id, requests, seconds since the last)`.
    fn remotes(known: impl IntoIterator<Item = (u64, u64, u64)>) -> BTreeMap<u64, Arc<Peer>> {
        let now = Instant::now();
        let peer = |(id, requests, silent): (u64, u64, u64)| {
            let peer = Peer::new(id, Vec::new(), false, Arc::default());
            peer.set_requests(requests, now - Duration::from_secs(silent));
            (id, Arc::new(peer))
        };
        known.into_iter().map(peer).collect()
    }

    #[test]
    fn invented_senders_keep_no_place() {
        let fifteen = |requests, silent| (1..16).map(move |id| (id, requests, silent));
        assert_eq!(place_for(&remotes(fifteen(1, 0))), Place::Free);
        // A member that answers heartbeats keeps its place, however many others were named once.
        let real = [(99, 50, 3)];
        assert_eq!(place_for(&remotes(fifteen(1, 2).chain(real))), Place::Of(1));
        assert_eq!(place_for(&remotes(fifteen(1, 0).chain(real))), Place::None);
        assert_eq!(place_for(&remotes(fifteen(2, 2).chain(real))), Place::None);
        assert_eq!(place_for(&remotes(fifteen(2, 2).chain([(99, 50, 11)]))), Place::Of(99), "it is silent");
        let members = remotes(fifteen(1, 2).chain(real));
        members.values().for_each(|peer| peer.is_dialled.store(true, Ordering::SeqCst));
        assert_eq!(place_for(&members), Place::Free);
    }
}
