//! Streams that are passed on, message by message: what one side does not take holds the other side back.

use api::Error;
use budget::Claim;
use bytes::Bytes;
use contain::Contained;
use parking_lot::Mutex;
use rpc::{Metadata, Outbound, Status, StreamCall, StreamHandler, StreamWaker};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

use crate::namespace::Namespace;
use crate::on_way::OnWay;
use crate::upstream::{Refusals, STREAM_WINDOW_BYTES, Upstream, tell_unreached};

/// Bytes of a member's messages that wait for the client before no more are read.
const WAITING_BYTES_MAX: usize = 256 * 1024;
/// How long a stream waits for room that its own client does not take.
const ROOM_PATIENCE: Duration = Duration::from_secs(5);
/// What a message of a client takes at least.
const REQUEST_BYTES_MIN: usize = 64;
/// How often a stream for whose messages there is no room looks again.
const ROOM_LOOK: Duration = Duration::from_millis(100);

/// The first pause before another member is asked, for the first was a learner; each further one takes twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest of them.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A stream to be passed on.
pub(crate) struct Passage {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) path: &'static str,
    pub(crate) metadata: Metadata,
    /// The client sends one message.
    pub(crate) is_single: bool,
    pub(crate) namespace: Namespace,
}

/// What both sides of a stream share.
struct Shared {
    state: Mutex<State>,
    /// Tells the task that there is something for the member, or room for what it sends.
    news: Notify,
    waker: StreamWaker,
}

impl Shared {
    /// The member has taken what was posted: it is held no more.
    fn settle_posted(&self) {
        let mut state = self.state.lock();
        let posted = std::mem::take(&mut state.posted_bytes);
        state.to_member_bytes = state.to_member_bytes.saturating_sub(posted);
        drop(state);
        // The connection looks how much is held.
        self.waker.wake();
    }
}

#[derive(Default)]
struct State {
    to_member: VecDeque<Bytes>,
    to_member_bytes: usize,
    /// What of it is with the connection to the member.
    posted_bytes: usize,
    /// The client sends no more.
    is_half_closed: bool,
    /// There is no client any more.
    is_gone: bool,
    to_client: VecDeque<Bytes>,
    to_client_bytes: usize,
    /// What of it has claims of its own.
    claimed_bytes: usize,
    end: Option<Status>,
}

/// Whether a message for the client has a claim of its own, until it has left. The others are claimed while they wait.
fn has_own_claim(message: &Bytes) -> bool {
    message.len() > api::limits::BUDGET_FREE_BYTES
}

/// A client's side.
pub(crate) struct Passing {
    shared: Arc<Shared>,
    path: &'static str,
    namespace: Namespace,
    /// For messages that the member has not taken.
    claim: Claim,
}

impl Passing {
    /// Begins the member's side, as a task of this thread. `requests` and `answers` are claims of nothing yet.
    pub(crate) fn begin(passage: Passage, call: &StreamCall, requests: Claim, answers: Claim) -> Passing {
        let shared = Arc::new(Shared { state: Mutex::default(), news: Notify::new(), waker: call.waker.clone() });
        let timeout = call.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let passing = Passing {
            shared: shared.clone(),
            path: passage.path,
            namespace: passage.namespace.clone(),
            claim: requests,
        };
        let task = async move {
            let status = pass(&passage, timeout, &shared, answers).await;
            shared.state.lock().end = Some(Status::new(status.code, status.message));
            shared.waker.wake();
        };
        tokio::spawn(Contained::new(task));
        passing
    }

    /// Claims what the member has not taken. False if there is no room.
    fn reclaim(&mut self, more: usize) -> bool {
        let held = self.held_bytes().saturating_add(more);
        if held <= api::limits::BUDGET_FREE_BYTES && self.claim.bytes() == 0 {
            return true;
        }
        self.claim.resize(held as u64)
    }

    fn pump(&self, out: &mut Outbound<'_>) {
        let mut state = self.shared.state.lock();
        while out.has_room() {
            let Some(message) = state.to_client.pop_front() else { break };
            state.to_client_bytes = state.to_client_bytes.saturating_sub(message.len());
            if has_own_claim(&message) {
                state.claimed_bytes = state.claimed_bytes.saturating_sub(message.len());
            }
            out.send(message);
        }
        if state.to_client.is_empty()
            && let Some(status) = state.end.take()
        {
            out.finish(status);
        }
        drop(state);
        self.shared.news.notify_one();
    }
}

impl StreamHandler for Passing {
    fn message(&mut self, message: Bytes, out: &mut Outbound<'_>) {
        match self.namespace.request(self.path, message) {
            Ok(message) if self.reclaim(message.len().max(REQUEST_BYTES_MIN)) => {
                let mut state = self.shared.state.lock();
                state.to_member_bytes = state.to_member_bytes.saturating_add(message.len().max(REQUEST_BYTES_MIN));
                state.to_member.push_back(message);
            }
            Ok(_) => out.finish(Error::TooManyRequests.into()),
            Err(status) => out.finish(status),
        }
        self.shared.news.notify_one();
    }

    fn half_closed(&mut self, _out: &mut Outbound<'_>) {
        self.shared.state.lock().is_half_closed = true;
        self.shared.news.notify_one();
    }

    fn ready(&mut self, out: &mut Outbound<'_>) {
        // Less is always granted.
        self.reclaim(0);
        self.pump(out);
    }

    fn held_bytes(&self) -> usize {
        self.shared.state.lock().to_member_bytes
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.shared.state.lock().is_gone = true;
        self.shared.news.notify_one();
    }
}

/// The member's side: until the member ends the call, or the client has gone.
async fn pass(passage: &Passage, timeout: Option<Duration>, shared: &Shared, mut claim: Claim) -> Status {
    // The only message, for another member if the first one turns out to be a learner.
    let mut only = None;
    let (mut refusals, mut pause) = (Refusals::default(), PAUSE_MIN);
    loop {
        let status = match converse(passage, timeout, shared, &mut claim, &mut only).await {
            Ok(status) => return status,
            Err(status) => status,
        };
        let is_final = client::is_unreached(&status) || refusals.are_final(&status, passage.upstream.members());
        if !passage.is_single || is_final {
            return status;
        }
        tokio::time::sleep(pause).await;
        if shared.state.lock().is_gone {
            return Status::OK;
        }
        pause = pause.saturating_mul(2).min(PAUSE_MAX);
    }
}

/// What a stream to a member takes of the memory: a window that the member may fill at any time, what waits for the client, and the
/// message that is coming, as often as it is there.
struct Space<'a> {
    claim: &'a mut Claim,
    copies: usize,
    on_way: OnWay,
    lacks_since: Option<Instant>,
}

impl Space<'_> {
    /// Claims what there is with a message of `coming` bytes. Of what waits, `claimed` is already. False if there is no room.
    fn has_room(&mut self, waiting: usize, claimed: usize, coming: usize) -> bool {
        let bytes = (STREAM_WINDOW_BYTES as usize).saturating_add(waiting.saturating_sub(claimed));
        let bytes = bytes.saturating_add(coming.saturating_mul(self.copies));
        let is_there = self.claim.resize(bytes as u64);
        // What its own client does not take may be there for ever.
        let is_own = is_there || waiting > 0 || self.on_way.has_any();
        if !is_own {
            self.claim.refused(bytes as u64);
        }
        self.lacks_since = if is_own { None } else { self.lacks_since.or_else(|| Some(Instant::now())) };
        is_there
    }

    /// Whether there has been no room for too long.
    fn is_late(&self) -> bool {
        self.lacks_since.is_some_and(|since| since.elapsed() >= ROOM_PATIENCE)
    }
}

/// One attempt; an error says that nothing came of it.
async fn converse(
    passage: &Passage,
    timeout: Option<Duration>,
    shared: &Shared,
    claim: &mut Claim,
    only: &mut Option<Bytes>,
) -> Result<Status, Status> {
    let Passage { upstream, path, metadata, namespace, .. } = passage;
    let copies = if namespace.is_empty() { 1 } else { 2 };
    let mut space = Space { claim, copies, on_way: OnWay::default(), lacks_since: None };
    while !space.has_room(0, 0, 0) {
        if shared.state.lock().is_gone {
            return Ok(Status::OK);
        }
        if space.is_late() {
            return Ok(Error::TooManyRequests.into());
        }
        tokio::time::sleep(ROOM_LOOK).await;
    }
    let client = upstream.stream_client()?;
    let mut opening = std::pin::pin!(client.forward_stream(path, metadata, timeout));
    let opened = loop {
        tokio::select! {
            opened = &mut opening => break opened,
            () = shared.news.notified() => {
                if shared.state.lock().is_gone {
                    return Ok(Status::OK);
                }
            }
        }
    };
    let mut call = opened.inspect_err(tell_unreached)?;
    let (mut taken, mut is_finished, mut has_come) = (only.clone().map(|message| call.post(message)), false, false);
    // The length of the message that is coming.
    let mut coming = None;
    // What the client said before there was a call.
    shared.news.notify_one();
    loop {
        let has_room = {
            let mut state = shared.state.lock();
            if state.is_gone {
                return Ok(Status::OK);
            }
            if taken.is_none() {
                if let Some(message) = state.to_member.pop_front() {
                    state.posted_bytes = message.len().max(REQUEST_BYTES_MIN);
                    *only = passage.is_single.then(|| message.clone());
                    taken = Some(call.post(message));
                } else if state.is_half_closed && !std::mem::replace(&mut is_finished, true) {
                    call.finish();
                }
            }
            let (waiting, claimed) = (state.to_client_bytes, state.claimed_bytes);
            waiting < WAITING_BYTES_MAX && space.has_room(waiting, claimed, coming.unwrap_or(0))
        };
        if space.is_late() {
            return Ok(Error::TooManyRequests.into());
        }
        let is_taken = async {
            match &mut taken {
                Some(taken) => taken.await,
                None => std::future::pending().await,
            }
        };
        let next = async {
            match coming {
                None => call.next_len().await.map(|len| (len, None)),
                Some(_) => call.next().await.map(|message| (None, message)),
            }
        };
        tokio::select! {
            () = shared.news.notified() => {}
            () = is_taken => {
                taken = None;
                // A single one may be needed for another member.
                if !passage.is_single {
                    shared.settle_posted();
                }
            }
            () = tokio::time::sleep(ROOM_LOOK), if !has_room => {}
            next = next, if has_room => {
                if let Err(status) = &next
                    && !has_come
                    && client::is_from_learner(status)
                {
                    return Err(status.clone());
                }
                let message = match next {
                    Ok((Some(len), _)) => {
                        coming = Some(len);
                        continue;
                    }
                    Ok((None, Some(message))) => message,
                    Ok((None, None)) => return Ok(Status::OK),
                    Err(status) => return Ok(status),
                };
                coming = None;
                let message = match namespace.response(path, message) {
                    Ok(message) => message,
                    Err(status) => return Ok(status),
                };
                if !std::mem::replace(&mut has_come, true) && only.take().is_some() {
                    shared.settle_posted();
                }
                let is_claimed = has_own_claim(&message);
                // There was room for it before it came.
                let message = if is_claimed {
                    space.on_way.count(space.claim.split(message.len() as u64).hold(message))
                } else {
                    message
                };
                let mut state = shared.state.lock();
                state.to_client_bytes = state.to_client_bytes.saturating_add(message.len());
                if is_claimed {
                    state.claimed_bytes = state.claimed_bytes.saturating_add(message.len());
                }
                state.to_client.push_back(message);
                drop(state);
                shared.waker.wake();
            }
        }
    }
}
