//! `v3electionpb.Election/Observe`: the leader's key, each time it changes or another one leads.

use super::election::leader_response;
use super::local_client::{Answer, LocalClient, oldest, prefix};
use super::reply::decode;
use super::rooms::Rooms;
use crate::auth::Asking;
use crate::auth::rules::Parts;
use crate::node::Node;
use api::etcdserverpb::watch_create_request::FilterType;
use api::etcdserverpb::{RangeResponse, ResponseHeader, WatchCreateRequest};
use api::mvccpb::{KeyValue, event::EventType};
use api::v3electionpb::LeaderRequest;
use bytes::Bytes;
use contain::lock;
use rpc::{Outbound, Status, StreamCall, StreamHandler, StreamWaker};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use store::watch::WatchStream;

/// The state of an observer.
enum State {
    /// No request has arrived yet.
    Idle,
    /// Waits for a range.
    Reading(Arc<Mutex<Option<Answer<RangeResponse>>>>),
    /// There is no leader: waits for the first key.
    Vacant(WatchStream),
    /// Follows the leader's key.
    Following(WatchStream),
}

/// One observing stream.
pub(super) struct Observe {
    caller: LocalClient,
    waker: StreamWaker,
    rooms: Rooms,
    prefix: Bytes,
    state: State,
    /// Responses to send. `None` marks the deletion of the key.
    due: VecDeque<Option<(Option<ResponseHeader>, KeyValue)>>,
}

impl Observe {
    pub(super) fn new(node: &Arc<Node>, call: StreamCall, asking: Asking<Parts>) -> Observe {
        let caller = LocalClient::new(node, asking);
        let rooms = Rooms::new(node, call.peer.address, call.waker.clone());
        Observe { caller, waker: call.waker, rooms, prefix: Bytes::new(), state: State::Idle, due: VecDeque::new() }
    }

    /// Reads the leader's key.
    fn read(&mut self) {
        let slot: Arc<Mutex<Option<Answer<RangeResponse>>>> = Arc::default();
        let (filled, waker) = (slot.clone(), self.waker.clone());
        self.state = State::Reading(slot);
        self.caller.range(oldest(&self.prefix), move |answer| {
            *lock(&filled) = Some(answer);
            waker.wake();
        });
    }

    fn watch(&self, request: WatchCreateRequest) -> WatchStream {
        let waker = self.waker.clone();
        let mut watch = self.caller.watches(move || waker.wake());
        watch.create(request);
        watch
    }

    /// Watches for the first key of a prefix that had none at `revision`. Deletions are filtered out: one request may delete millions
    /// of keys, and all events of a revision are decoded at once.
    fn await_leader(&self, revision: i64) -> WatchStream {
        let all = oldest(&self.prefix);
        self.watch(WatchCreateRequest {
            key: all.key,
            range_end: all.range_end,
            start_revision: revision.saturating_add(1),
            filters: vec![FilterType::Nodelete as i32],
            ..Default::default()
        })
    }

    /// Queues a response for a leader, and watches its key.
    fn follow(&mut self, header: Option<ResponseHeader>, pair: KeyValue) {
        let next = header.map_or(0, |header| header.revision).saturating_add(1);
        let request = WatchCreateRequest { key: pair.key.clone(), start_revision: next, ..Default::default() };
        self.state = State::Following(self.watch(request));
        self.due.push_back(Some((header, pair)));
    }

    /// Makes one step, and returns whether there was one. After an error the stream ends without an error text, as in
    /// etcd.
    fn step(&mut self) -> Result<bool, ()> {
        match &mut self.state {
            State::Idle => Ok(false),
            State::Reading(slot) => {
                let Some(answer) = lock(slot).take() else { return Ok(false) };
                let found = answer.map_err(drop)?;
                match found.kvs.into_iter().next() {
                    Some(pair) => self.follow(found.header, pair),
                    None => {
                        let revision = found.header.map_or(0, |header| header.revision);
                        self.state = State::Vacant(self.await_leader(revision));
                    }
                }
                Ok(true)
            }
            State::Vacant(watch) => {
                let Some(response) = self.caller.read_watch(watch, Some(&mut self.rooms)) else { return Ok(false) };
                let response = response.map_err(drop)?;
                if response.canceled {
                    return Err(());
                }
                if let Some(pair) = response.events.into_iter().next().and_then(|event| event.kv) {
                    let header = response.header.map(|header| ResponseHeader { revision: pair.mod_revision, ..header });
                    self.follow(header, pair);
                }
                Ok(true)
            }
            State::Following(watch) => {
                let Some(response) = self.caller.read_watch(watch, Some(&mut self.rooms)) else { return Ok(false) };
                let response = response.map_err(drop)?;
                if response.canceled {
                    return Err(());
                }
                for event in response.events {
                    if event.r#type == EventType::Delete as i32 {
                        self.due.push_back(None);
                        break;
                    }
                    self.due.extend(event.kv.map(|pair| Some((response.header, pair))));
                }
                Ok(true)
            }
        }
    }

    fn pump(&mut self, out: &mut Outbound<'_>) {
        self.pump_turn(out);
        let waits = match &self.state {
            State::Vacant(watch) | State::Following(watch) => watch.is_waiting(),
            State::Idle | State::Reading(_) => false,
        };
        self.rooms.settle(waits);
    }

    fn pump_turn(&mut self, out: &mut Outbound<'_>) {
        loop {
            while let Some(due) = self.due.front() {
                if due.is_some() && !out.has_room() {
                    // The transport calls again when there is room.
                    return;
                }
                match self.due.pop_front().flatten() {
                    Some((header, pair)) => out.send_reply(leader_response(header, pair)),
                    None => {
                        self.due.clear();
                        self.read();
                    }
                }
            }
            match self.step() {
                Ok(true) => {}
                Ok(false) => return,
                Err(()) => return out.finish(Status::OK),
            }
        }
    }
}

impl StreamHandler for Observe {
    fn message(&mut self, message: Bytes, out: &mut Outbound<'_>) {
        self.caller = self.caller.holding(message.len());
        match decode::<LeaderRequest>(message) {
            Ok(request) => self.prefix = prefix(&request.name),
            Err(status) => return out.finish(status),
        }
        self.read();
        self.pump(out);
    }

    fn half_closed(&mut self, _out: &mut Outbound<'_>) {}

    fn ready(&mut self, out: &mut Outbound<'_>) {
        self.pump(out);
    }
}
