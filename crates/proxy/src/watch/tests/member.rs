//! A model of a member: its history, and what it does with the requests of a stream.

use super::{Dice, TOKENS};
use crate::watch::Subject;
use api::etcdserverpb::watch_create_request::FilterType;
use api::etcdserverpb::watch_request::RequestUnion;
use api::etcdserverpb::{ResponseHeader, WatchCreateRequest, WatchRequest, WatchResponse};
use api::mvccpb::Event;
use api::mvccpb::event::EventType;
use std::collections::{BTreeMap, VecDeque};

/// All events, and what is compacted.
#[derive(Default)]
pub(super) struct History {
    pub(super) events: Vec<Event>,
    pub(super) revision: i64,
    pub(super) compacted: i64,
}

/// What a request watches.
fn subject(request: &WatchCreateRequest) -> Subject {
    Subject { key: request.key.clone(), range_end: request.range_end.clone(), prev_kv: false, no_events: false }
}

/// Whether a token may watch what is asked for.
pub(super) fn permits(token: usize, request: &WatchCreateRequest) -> bool {
    let (key, range_end) = TOKENS[token];
    Subject { key: key.into(), range_end: range_end.into(), prev_kv: false, no_events: false }
        .contains(&subject(request))
}

impl History {
    pub(super) fn header(&self, revision: i64) -> ResponseHeader {
        ResponseHeader { cluster_id: 7, member_id: 1, revision, raft_term: 2 }
    }

    pub(super) fn of(&self, request: &WatchCreateRequest, from: i64, to: i64) -> Vec<Event> {
        let subject = subject(request);
        let wanted = |event: &&Event| {
            let kv = event.kv.as_ref().expect("a key");
            let filter =
                if event.r#type == EventType::Delete as i32 { FilterType::Nodelete } else { FilterType::Noput };
            (from..=to).contains(&kv.mod_revision)
                && subject.has(&kv.key)
                && !request.filters.contains(&(filter as i32))
        };
        self.events.iter().filter(wanted).cloned().collect()
    }
}

/// A stream to a member, which may lag behind the others.
#[derive(Default)]
pub(super) struct Stream {
    pub(super) is_up: bool,
    /// Whether the member has heard of the token.
    pub(super) knows_token: bool,
    /// The member's revision.
    pub(super) view: i64,
    pub(super) requests: VecDeque<WatchRequest>,
    pub(super) responses: VecDeque<WatchResponse>,
    pub(super) watches: BTreeMap<i64, (WatchCreateRequest, i64)>,
}

impl Stream {
    /// What a member does with one request.
    pub(super) fn handle(&mut self, history: &History, token: usize) {
        let Some(request) = self.requests.pop_front() else { return };
        let header = Some(history.header(self.view));
        match request.request_union {
            Some(RequestUnion::CreateRequest(request)) => {
                let watch_id = request.watch_id;
                let cancel_reason = match (self.knows_token, permits(token, &request)) {
                    (false, _) => api::Error::InvalidAuthToken.message(),
                    (true, false) => api::Error::PermissionDenied.message(),
                    (true, true) => "",
                };
                let canceled = !cancel_reason.is_empty();
                let cancel_reason = cancel_reason.to_string();
                let watch =
                    WatchResponse { header, watch_id, created: true, canceled, cancel_reason, ..Default::default() };
                self.responses.push_back(watch);
                if !canceled {
                    let next = if request.start_revision == 0 { self.view + 1 } else { request.start_revision };
                    self.watches.insert(watch_id, (request, next));
                }
            }
            Some(RequestUnion::CancelRequest(request)) => {
                let watch_id = request.watch_id;
                let ended = self.watches.remove(&watch_id);
                let answer = WatchResponse { header, watch_id, canceled: true, ..Default::default() };
                self.responses.extend(ended.map(|_| answer));
            }
            Some(RequestUnion::ProgressRequest(_)) => {
                let is_level = self.watches.values().all(|(_, next)| *next == self.view + 1);
                if is_level && !self.watches.is_empty() {
                    self.responses.push_back(WatchResponse { header, watch_id: -1, ..Default::default() });
                }
            }
            None => {}
        }
    }

    /// A member sends what some watch lacks, or its progress.
    pub(super) fn deliver(&mut self, history: &History, dice: &mut Dice, all: bool) {
        let nth = dice.below(self.watches.len() as u64) as usize;
        let numbers: Vec<i64> = if all {
            self.watches.keys().copied().collect()
        } else {
            self.watches.keys().nth(nth).copied().into_iter().collect()
        };
        for number in numbers {
            let Some((request, next)) = self.watches.get_mut(&number) else { continue };
            let header = Some(history.header(self.view));
            if *next < history.compacted {
                let compact_revision = history.compacted;
                let ended =
                    WatchResponse { header, watch_id: number, canceled: true, compact_revision, ..Default::default() };
                self.responses.push_back(ended);
                self.watches.remove(&number);
                continue;
            }
            if *next > self.view {
                // Of its own accord a member tells progress every ten minutes: not while all comes to its end.
                if *next == self.view + 1 && request.progress_notify && !all && dice.one_in(4) {
                    self.responses.push_back(WatchResponse { header, watch_id: number, ..Default::default() });
                }
                continue;
            }
            let end = if all { self.view } else { (*next + dice.below(4) as i64).min(self.view) };
            let events = history.of(request, *next, end);
            *next = end + 1;
            if !events.is_empty() {
                self.responses.push_back(WatchResponse { header, watch_id: number, events, ..Default::default() });
            }
        }
    }
}
