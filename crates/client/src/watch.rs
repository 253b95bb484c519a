//! A watch that resumes on another member when one is lost.

use std::sync::Arc;

use api::etcdserverpb::watch_request::RequestUnion;
use api::etcdserverpb::{ResponseHeader, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse};
use api::mvccpb::Event;
use api::{Code, Message};
use bytes::Bytes;
use rpc::Status;
use rpc::client::StreamingCall;

use crate::balancer::Member;
use crate::call::read;
use crate::client::Client;
use crate::credentials::Ticket;
use crate::{Error, retry};

/// The path of the method.
const WATCH: &str = "/etcdserverpb.Watch/Watch";

/// A watch of a range of keys. Every event comes once and in order, whichever members the watch had to go through: a stream that is
/// lost is taken up again after the last event that came. One revision's events come together.
///
/// Dropping it ends the watch.
pub struct Watcher {
    client: Client,
    request: WatchCreateRequest,
    place: Place,
    stream: Option<Stream>,
    /// The token that was refused last.
    refused: Option<Ticket>,
    /// Another token was asked for since a watch was created last: one that is refused again is refused for another reason.
    has_renewed: bool,
    failures: u32,
    /// Events of an answer that comes in pieces.
    fragments: Vec<Event>,
    ended: Option<Error>,
    cancellation: Option<WatchResponse>,
}

struct Stream {
    // Keeps the connection that the call runs on.
    _member: Arc<Member>,
    call: StreamingCall,
    ticket: Ticket,
    is_created: bool,
}

/// How far a watch has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// The start revision of a new stream: the one after the last that is known to be complete. 0: the next event, whichever it is.
    next_revision: i64,
}

impl Place {
    /// The watch was created at the present `revision`: what a watch "from now on" missed later begins after it.
    fn created(&mut self, revision: i64) {
        if self.next_revision == 0 {
            self.next_revision = revision.saturating_add(1);
        }
    }

    /// All events up to `revision` have come.
    fn complete(&mut self, revision: i64) {
        self.next_revision = self.next_revision.max(revision.saturating_add(1));
    }
}

/// Something a watch has to say.
#[derive(Clone, Debug, PartialEq)]
pub struct Watched {
    /// The events, in the order of their revisions. None: all events up to `revision` have come.
    pub events: Vec<Event>,
    /// The revision of the store of which the member answered.
    pub revision: i64,
    /// What the member says of itself.
    pub header: ResponseHeader,
}

impl Client {
    /// Watches the keys from `key` to `range_end` as `request` has it. Begins with the first call of [`Watcher::next`].
    pub fn watch(&self, request: WatchCreateRequest) -> Watcher {
        let place = Place { next_revision: request.start_revision };
        // The numbers on a stream of its own are of no interest; pieces are put together here.
        let request = WatchCreateRequest { watch_id: 0, fragment: true, ..request };
        let (refused, fragments, ended) = (None, Vec::new(), None);
        Watcher {
            client: self.clone(),
            request,
            place,
            stream: None,
            refused,
            has_renewed: false,
            failures: 0,
            fragments,
            ended,
            cancellation: None,
        }
    }
}

impl Watcher {
    /// The revision from which the watch would resume: all events before it have come. 0 while nothing is known.
    pub fn next_revision(&self) -> i64 {
        self.place.next_revision
    }

    /// The answer by which a member has ended the watch, if one did.
    pub fn cancellation(&self) -> Option<&WatchResponse> {
        self.cancellation.as_ref()
    }

    /// Waits until the watch exists on a member, so that no event after this is missed.
    ///
    /// # Errors
    /// As [`Watcher::next`].
    pub async fn created(&mut self) -> Result<(), Error> {
        while !self.stream.as_ref().is_some_and(|stream| stream.is_created) {
            // Nothing may come before it is created: a member that sends something has made an error.
            self.step().await?;
        }
        Ok(())
    }

    /// Asks for the revision up to which all events have come; [`Watcher::next`] tells it, without events.
    ///
    /// # Errors
    /// As [`Watcher::next`].
    pub async fn request_progress(&mut self) -> Result<(), Error> {
        self.created().await?;
        let request = WatchRequest { request_union: Some(RequestUnion::ProgressRequest(WatchProgressRequest {})) };
        if let Some(stream) = &mut self.stream {
            // A stream that has ended says so by itself.
            let _ = stream.call.send(request.encode_to_vec().into()).await;
        }
        Ok(())
    }

    /// The next events. May be given up and called again: nothing is lost.
    ///
    /// # Errors
    /// [`Error::Compacted`] if what it would go on with is gone, [`Error::WatchCancelled`] if a member refused it, another if no member
    /// can be asked for a reason that does not pass. A watch that has failed stays so.
    pub async fn next(&mut self) -> Result<Watched, Error> {
        loop {
            if let Some(watched) = self.step().await? {
                return Ok(watched);
            }
        }
    }

    /// One message of the stream, or a new stream.
    async fn step(&mut self) -> Result<Option<Watched>, Error> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        let Some(stream) = &mut self.stream else {
            self.open().await?;
            return Ok(None);
        };
        match stream.call.next().await {
            Ok(Some(message)) => self.message(message),
            Ok(None) => self.lost(Status::new(Code::Unavailable, "the member ended the watch")).await,
            Err(status) => self.lost(status).await,
        }
    }

    async fn open(&mut self) -> Result<(), Error> {
        // Forgotten only once there is another: this may be given up at every await.
        let ticket = match self.client.ticket(self.refused.as_ref()).await {
            Ok(ticket) => ticket,
            Err(status) => return self.lost(status).await.map(drop),
        };
        self.refused = None;
        let opened = self.client.open(WATCH, &ticket).await;
        let (member, mut call) = match opened {
            Ok(opened) => opened,
            Err(failure) => return self.lost(failure.status).await.map(drop),
        };
        let request = WatchCreateRequest { start_revision: self.place.next_revision, ..self.request.clone() };
        let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(request)) };
        // A call that has ended already says how when it is read.
        let _ = call.send(request.encode_to_vec().into()).await;
        self.fragments.clear();
        self.stream = Some(Stream { _member: member, call, ticket, is_created: false });
        Ok(())
    }

    fn message(&mut self, message: Bytes) -> Result<Option<Watched>, Error> {
        let response: WatchResponse = match read(WATCH, message) {
            Ok(response) => response,
            Err(error) => return Err(self.end(error)),
        };
        let revision = response.header.as_ref().map_or(0, |header| header.revision);
        if response.canceled {
            return self.cancelled(&response);
        }
        if response.created {
            (self.failures, self.has_renewed) = (0, false);
            self.place.created(revision);
            if let Some(stream) = &mut self.stream {
                stream.is_created = true;
            }
            return Ok(None);
        }
        if !self.stream.as_ref().is_some_and(|stream| stream.is_created) {
            let why = "it tells of a watch that was not created".into();
            return Err(self.end(Error::Unreadable { method: WATCH.into(), why }));
        }
        self.fragments.extend(response.events);
        if response.fragment {
            return Ok(None);
        }
        let events = std::mem::take(&mut self.fragments);
        match events.last().and_then(|event| event.kv.as_ref()) {
            Some(last) => self.place.complete(last.mod_revision),
            None => self.place.complete(revision),
        }
        let header = response.header.unwrap_or_default();
        Ok(Some(Watched { events, revision, header }))
    }

    fn cancelled(&mut self, response: &WatchResponse) -> Result<Option<Watched>, Error> {
        self.cancellation = Some(response.clone());
        if response.compact_revision != 0 {
            return Err(self.end(Error::Compacted { revision: response.compact_revision }));
        }
        let texts = [api::Error::InvalidAuthToken, api::Error::AuthOldRevision];
        let is_token = texts.iter().any(|error| response.cancel_reason.contains(error.message()));
        let stream = self.stream.take();
        if is_token && self.renew(stream) {
            self.failures += 1;
            return Ok(None);
        }
        Err(self.end(Error::WatchCancelled(response.cancel_reason.clone())))
    }

    /// Goes on with another stream, if that can help.
    async fn lost(&mut self, status: Status) -> Result<Option<Watched>, Error> {
        let stream = self.stream.take();
        self.fragments.clear();
        let no_leader = status.message == api::Error::NoLeader.message() && self.client.inner.options.needs_leader;
        let goes_on = retry::wants_another_token(&status) && self.renew(stream);
        self.failures += 1;
        let is_passing = retry::is_passing(&status) || self.client.can_ask_elsewhere(&status, self.failures);
        if !goes_on && (no_leader || !is_passing) {
            return Err(self.end(status.into()));
        }
        self.client.pause(self.failures, &status).await;
        Ok(None)
    }

    /// Makes the next stream carry another token than `stream` did. False if there is none, or another one was refused just now.
    fn renew(&mut self, stream: Option<Stream>) -> bool {
        let Some(stream) = stream else { return false };
        if self.has_renewed || !self.client.inner.credentials.can_refresh() {
            return false;
        }
        (self.refused, self.has_renewed) = (Some(stream.ticket), true);
        true
    }

    fn end(&mut self, error: Error) -> Error {
        self.stream = None;
        self.ended = Some(error.clone());
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_goes_on_behind_what_has_come() {
        let mut place = Place { next_revision: 0 };
        place.created(7);
        assert_eq!(place.next_revision, 8);
        // Created again on another member that is further on: what came between is not skipped.
        place.created(12);
        assert_eq!(place.next_revision, 8);
        place.complete(9);
        assert_eq!(place.next_revision, 10);
        // A member that is behind reports an older revision.
        place.complete(5);
        assert_eq!(place.next_revision, 10);
        // There is no last revision; one that a member makes up ends nothing.
        place.complete(i64::MAX);
        assert_eq!(place.next_revision, i64::MAX);
    }
}
