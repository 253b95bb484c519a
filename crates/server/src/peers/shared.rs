//! What all threads of this module share.

use super::after;
use super::gate::Gate;
use super::identity::Identity;
use super::metrics::{Counters, Ledger};
use super::places::Places;
use super::snapshot::{Exports, Receiving};
use super::waker::Waker;
use super::{Handler, Known, Peer, Timeouts, courier, reader};
use crate::logging::{self, Value};
use crate::node::lock;
use api::raftpb::Message;
use http::HeaderMap;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Members that are known from their requests only.
const REMOTES_MAX: usize = 16;

pub(super) struct Shared {
    pub(super) identity: Identity,
    pub(super) gate: Gate,
    /// What every request to a peer carries.
    pub(super) headers: HeaderMap,
    pub(super) timeouts: Timeouts,
    pub(super) message_bytes_max: usize,
    pub(super) handler: Arc<dyn Handler>,
    pub(super) flusher: Waker,
    pub(super) ledger: Ledger,
    pub(super) exports: Exports,
    pub(super) receiving: Receiving,
    /// Of connections that others have dialled and that are not streams.
    pub(super) places: Arc<Places>,
    /// Bytes of bodies that are being received.
    pub(super) body_bytes: AtomicUsize,
    peers: RwLock<BTreeMap<u64, Arc<Peer>>>,
    serial: AtomicU64,
    removal_told: AtomicBool,
    stopping: (Mutex<bool>, Condvar),
}

impl Shared {
    pub(super) fn new(
        identity: Identity,
        gate: Gate,
        timeouts: Timeouts,
        message_bytes_max: usize,
        handler: Arc<dyn Handler>,
    ) -> io::Result<Shared> {
        Ok(Shared {
            headers: identity.headers(),
            identity,
            gate,
            timeouts,
            message_bytes_max,
            handler,
            flusher: Waker::new()?,
            ledger: Ledger::default(),
            exports: Exports::default(),
            receiving: Receiving::default(),
            places: Arc::default(),
            body_bytes: AtomicUsize::new(0),
            peers: RwLock::new(BTreeMap::new()),
            serial: AtomicU64::new(0),
            removal_told: AtomicBool::new(false),
            stopping: (Mutex::new(false), Condvar::new()),
        })
    }

    /// A number that no other stream has.
    pub(super) fn next_serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn peer(&self, id: u64) -> Option<Arc<Peer>> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    pub(super) fn peers(&self) -> Vec<Arc<Peer>> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(super) fn counters(&self, id: u64) -> Arc<Counters> {
        self.ledger.of(id)
    }

    pub(super) fn set(self: &Arc<Self>, id: u64, urls: Vec<String>) {
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

    /// Remembers a sender that this member does not know yet, so that it can be answered: after a restart from an old state, or
    /// when this member has not heard of it yet.
    pub(super) fn set_remote(self: &Arc<Self>, id: u64, urls: &str) {
        let is_new = id != 0
            && id != self.identity.member_id
            && self.peer(id).is_none()
            && self.handler.knows(id) != Known::Removed;
        if !is_new || self.is_stopping() {
            return;
        }
        let urls: Vec<String> = urls.split(',').map(str::to_string).collect();
        if urls.iter().any(|url| super::Address::parse(url).is_err()) {
            return;
        }
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        let remotes = peers.values().filter(|peer| !peer.is_dialled.load(Ordering::SeqCst)).count();
        if remotes < REMOTES_MAX && !peers.contains_key(&id) {
            logging::info(
                "added new remote peer",
                &[
                    ("remote-peer-id", Value::Shown(&format_args!("{id:x}"))),
                    ("remote-peer-urls", Value::Shown(&urls.join(","))),
                ],
            );
            peers.insert(id, self.begin(id, urls, false));
        }
    }

    fn begin(self: &Arc<Self>, id: u64, urls: Vec<String>, is_dialled: bool) -> Arc<Peer> {
        let peer = Arc::new(Peer::new(id, urls, is_dialled, self.counters(id)));
        courier::start(self, &peer);
        peer
    }

    pub(super) fn remove(&self, id: u64) {
        let peer = self.peers.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        if let Some(peer) = peer {
            peer.stop();
            // It still waits for the sockets that were just closed.
            self.flusher.wake();
            logging::info("removed remote peer", &[("removed-remote-peer-id", Value::Shown(&format_args!("{id:x}")))]);
        }
    }

    pub(super) fn send(&self, messages: &[Message]) {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        for peer in peers.values() {
            peer.send(self, messages);
        }
    }

    /// A peer says that this member was removed. Passed on once.
    pub(super) fn tell_removed(&self, by: u64) {
        if !self.removal_told.swap(true, Ordering::SeqCst) {
            logging::warn(
                "a peer says that this member has been removed from the cluster",
                &[("remote-peer-id", Value::Shown(&format_args!("{by:x}")))],
            );
            self.handler.removed();
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        *lock(&self.stopping.0)
    }

    pub(super) fn stop(&self) {
        *lock(&self.stopping.0) = true;
        self.stopping.1.notify_all();
        for peer in self.peers() {
            peer.stop();
        }
        self.flusher.wake();
    }

    /// Sleeps, or until [`Shared::stop`].
    pub(super) fn pause(&self, time: Duration) {
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
