//! The streams to members.

use api::Message as _;
use api::etcdserverpb::{RangeRequest, WatchRequest};
use api::{Code, Error};
use bytes::Bytes;
use rpc::client::{StreamingCall, Taken};
use rpc::{Metadata, Status};
use std::sync::Arc;
use std::time::Duration;
use telemetry::logging::{self, Pace, Value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::CircleId;
use super::feed::Lane;
use crate::order::revision_of;
use crate::single::RANGE;
use crate::upstream::{Refusals, Upstream};

const WATCH: &str = "/etcdserverpb.Watch/Watch";
/// How long a read may take that looks how far members are.
const PATIENCE: Duration = Duration::from_secs(5);
/// KiB of members' messages that wait for the thread before no more are read: of one stream, and of all.
const STREAM_KIB_MAX: u32 = 4 << 10;
const ALL_KIB_MAX: usize = 32 << 10;
/// Pauses between two attempts to get a stream: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// What a stream to a member tells the thread.
pub(super) struct News {
    pub(super) circle: CircleId,
    pub(super) lane: Lane,
    /// Which of the lane's streams, one after the other.
    pub(super) stream: u64,
    pub(super) what: What,
    /// Room for as much as it takes, until it is handled.
    _room: Option<[OwnedSemaphorePermit; 2]>,
}

pub(super) enum What {
    /// There is a stream, which takes these. Once nobody could ask any more, another one is got.
    Up(UnboundedSender<WatchRequest>),
    Message(Bytes),
    Down,
    /// Members refuse these clients.
    Refused(Status),
    /// All members together have this revision, or it cannot be known.
    Confirmed(Option<i64>),
    /// Nothing was told: the circle's hub has work of its own to do.
    Work,
}

impl News {
    /// A turn of a circle for its own work.
    pub(super) fn work(circle: CircleId) -> News {
        News { circle, lane: Lane::Main, stream: 0, what: What::Work, _room: None }
    }
}

/// Room for the messages of all streams.
pub(super) fn room_of_all() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(ALL_KIB_MAX))
}

/// Where the streams of a lane tell what they tell.
pub(super) struct Teller {
    pub(super) circle: CircleId,
    pub(super) lane: Lane,
    pub(super) news: UnboundedSender<News>,
    pub(super) room_of_all: Arc<Semaphore>,
}

impl Teller {
    /// False if nobody listens any more.
    fn tell(&self, stream: u64, what: What, room: Option<[OwnedSemaphorePermit; 2]>) -> bool {
        let news = News { circle: self.circle, lane: self.lane, stream, what, _room: room };
        self.news.send(news).is_ok()
    }

    /// Waits until there is room for a message.
    async fn room(&self, own: &Arc<Semaphore>, bytes: usize) -> Option<[OwnedSemaphorePermit; 2]> {
        let kib = u32::try_from(bytes / 1024).unwrap_or(u32::MAX).saturating_add(1).min(STREAM_KIB_MAX);
        let own = own.clone().acquire_many_owned(kib).await.ok()?;
        Some([own, self.room_of_all.clone().acquire_many_owned(kib).await.ok()?])
    }
}

/// Asks for the revision that all members together have, by a read of a key that these clients may watch.
pub(super) async fn confirm(upstream: Arc<Upstream>, metadata: Metadata, key: Bytes, teller: Teller) {
    let request = RangeRequest { key, keys_only: true, ..RangeRequest::default() };
    let message: Bytes = request.encode_to_vec().into();
    let revision = loop {
        let asked =
            async { upstream.client()?.forward(RANGE, &metadata, message.clone(), Some(PATIENCE), true, None).await };
        match asked.await {
            Ok(answer) => break Some(revision_of(&answer)),
            Err(status) if client::is_passing(&status) || status.code == Code::DeadlineExceeded => {
                tokio::time::sleep(PAUSE_MAX).await;
            }
            Err(_) => break None,
        }
        if teller.news.is_closed() {
            return;
        }
    };
    teller.tell(0, What::Confirmed(revision), None);
}

/// Keeps a stream to some member, and gets another one when it is lost.
pub(super) async fn keep_stream(upstream: Arc<Upstream>, metadata: Metadata, teller: Teller) {
    static PACE: Pace = Pace::new();
    let mut pause = PAUSE_MIN;
    let mut refusals = Refusals::default();
    for stream in 1_u64.. {
        let opened = async { upstream.stream_client()?.forward_stream(WATCH, &metadata, None).await };
        let ended = match opened.await {
            Ok(call) => {
                let (requests, queue) = unbounded_channel();
                if !teller.tell(stream, What::Up(requests), None) {
                    return;
                }
                let (ended, was_used) = converse(call, queue, stream, &teller).await;
                if was_used {
                    (pause, refusals) = (PAUSE_MIN, Refusals::default());
                }
                if !teller.tell(stream, What::Down, None) {
                    return;
                }
                ended
            }
            Err(status) => status,
        };
        let needs_leader = ended.message == Error::NoLeader.message() && metadata.get("hasleader").is_some();
        // A learner, or a member that has not heard of a token yet, does not speak for the others.
        let is_refused = needs_leader || !client::is_passing(&ended);
        if is_refused && refusals.are_final(&ended, upstream.members()) {
            teller.tell(stream, What::Refused(Status::new(ended.code, ended.message)), None);
            return;
        }
        if let Some(left_out) = PACE.line() {
            let fields = [("error", Value::from(&*ended.message)), ("lines-left-out", left_out.into())];
            logging::warn("lost the watch stream to a member; getting another one", &fields);
        }
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(2).min(PAUSE_MAX);
    }
}

/// Passes messages on until the stream ends, or another one is wanted: how it did, and whether anything came.
async fn converse(
    mut call: StreamingCall,
    mut queue: UnboundedReceiver<WatchRequest>,
    stream: u64,
    teller: &Teller,
) -> (Status, bool) {
    let room = Arc::new(Semaphore::new(STREAM_KIB_MAX as usize));
    let mut taken: Option<Taken> = None;
    let mut was_used = false;
    loop {
        let is_free = taken.is_none();
        let is_taken = async {
            match &mut taken {
                Some(taken) => taken.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = is_taken => taken = None,
            request = queue.recv(), if is_free => match request {
                Some(request) => taken = Some(call.post(request.encode_to_vec().into())),
                None => return (Status::new(Code::Unavailable, "another member is to be asked"), was_used),
            },
            next = call.next() => {
                let message = match next {
                    Ok(Some(message)) => message,
                    Ok(None) => return (Status::new(Code::Unavailable, "the member ended the stream"), was_used),
                    Err(status) => return (status, was_used),
                };
                was_used = true;
                let room = teller.room(&room, message.len()).await;
                if !teller.tell(stream, What::Message(message), room) {
                    return (Status::OK, was_used);
                }
            }
        }
    }
}
