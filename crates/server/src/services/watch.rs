//! `etcdserverpb.Watch`.

use super::audited::Watches;
use super::reply::decode;
use super::rooms::{LateRooms, Rooms};
use crate::auth::Asking;
use crate::auth::rules::Keys;
use crate::metrics::Reads;
use crate::node::Node;
use api::etcdserverpb::{WatchCreateRequest, WatchRequest, watch_request::RequestUnion};
use api::{Code, limits};
use bytes::{Bytes, BytesMut};
use rpc::{Outbound, StreamCall, StreamHandler, StreamWaker};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use store::watch::{Chunks, Hub, Room, Sink, WatchStream, Wrote};

/// One watch stream: requests in, responses out as the client takes them.
pub(super) struct Watch {
    node: Arc<Node>,
    asking: Asking<Keys>,
    stream: WatchStream,
    waker: StreamWaker,
    rooms: Rooms,
    progress_due: Arc<AtomicBool>,
    /// Records the watches, if that is wanted.
    watches: Option<Watches>,
}

impl Watch {
    pub(super) fn new(node: &Arc<Node>, call: StreamCall, asking: Asking<Keys>) -> Watch {
        let waker = call.waker.clone();
        let mut stream = Hub::stream(&node.store, Arc::new(move || waker.wake()));
        stream.limit(node.watches.of(call.peer.address));
        let progress_due = Arc::new(AtomicBool::new(false));
        node.progress_streams.add(&progress_due, call.waker.clone());
        let watches = Watches::of(node, &call);
        let rooms = Rooms::new(node, call.peer.address, call.waker.clone());
        Watch { node: node.clone(), asking, stream, waker: call.waker, rooms, progress_due, watches }
    }

    fn create(&mut self, request: WatchCreateRequest) {
        let named = self.watches.as_ref().map(|watches| (watches, request.clone()));
        let decided = self.asking.decide(&self.node, request);
        if let Some((watches, request)) = named {
            let code = decided.as_ref().err().map_or(Code::Ok, |error| error.code());
            watches.record(&self.node, &request, code);
        }
        match decided {
            Ok(request) => self.stream.create(request.into_parts().0),
            // The text has the form in which Go prints a status: clients look for its end.
            Err(error) => {
                self.stream.refuse(format!("rpc error: code = {} desc = {}", error.code().name(), error.message()));
            }
        }
    }

    fn pump(&mut self, out: &mut Outbound<'_>) {
        if self.progress_due.swap(false, Ordering::Relaxed) {
            self.stream.periodic_progress();
        }
        let mut meter = Meter::default();
        self.pump_turn(out, &mut meter);
        self.rooms.settle(self.stream.is_waiting());
        meter.stop(&self.node.metrics.reads);
    }

    /// Sends what waits, without reading the log for more.
    fn send_answers(&mut self, out: &mut Outbound<'_>) {
        let (origin, mut meter) = (self.node.origin(), Meter::default());
        let mut left = limits::TURN_BYTES_MAX;
        while left > 0 && out.has_room() {
            let mut responses = Responses { out, meter: &mut meter, rooms: &mut self.rooms };
            match self.stream.answer(&origin, left, &mut responses) {
                0 => break,
                written => left = left.saturating_sub(written),
            }
        }
        meter.stop(&self.node.metrics.reads);
    }

    fn pump_turn(&mut self, out: &mut Outbound<'_>, meter: &mut Meter) {
        let origin = self.node.origin();
        // After this many bytes, or records of the log, the connection's other streams get their turn.
        let mut left = limits::TURN_BYTES_MAX;
        let mut records_left = self.stream.records_max();
        while left > 0 {
            if !out.has_room() {
                // The transport calls again when there is room.
                return;
            }
            let mut responses = Responses { out, meter, rooms: &mut self.rooms };
            let written = self.stream.poll_within(&mut records_left, &origin, left, &mut responses);
            if written == 0 {
                return;
            }
            left = left.saturating_sub(written);
        }
        self.waker.wake();
    }
}

/// Writes responses directly into the stream's output.
struct Responses<'a, 'b> {
    out: &'a mut Outbound<'b>,
    meter: &'a mut Meter,
    rooms: &'a mut Rooms,
}

impl Sink for Responses<'_, '_> {
    fn response(&mut self, len: usize) -> &mut BytesMut {
        self.meter.begin();
        self.out.message(len)
    }

    fn long_response(&mut self, front: Bytes, events: Chunks) {
        self.meter.begin();
        let message: rpc::Chunks = std::iter::once(front).chain(events.iter().cloned()).collect();
        self.out.send_reply(message.into_reply());
    }

    fn room(&mut self, bytes: usize, waits: bool) -> Option<Arc<dyn Room>> {
        self.rooms.ask(bytes, waits)
    }

    fn is_waiting(&self) -> bool {
        self.rooms.is_waiting()
    }

    fn wrote(&mut self, what: Wrote) {
        match what {
            Wrote::Control => self.meter.control = self.meter.control.saturating_add(1),
            Wrote::Progress => self.meter.progress = self.meter.progress.saturating_add(1),
            Wrote::Events { responses, events } => {
                self.meter.events.0 = self.meter.events.0.saturating_add(responses);
                self.meter.events.1 = self.meter.events.1.saturating_add(events);
            }
        }
    }
}

/// Counts the responses of a turn and its time. Two readings of the clock serve all responses.
#[derive(Default)]
struct Meter {
    began: Option<Instant>,
    /// The number of responses with events, and the number of their events.
    events: (u64, u64),
    progress: u64,
    control: u64,
}

impl Meter {
    /// A response is about to be written.
    fn begin(&mut self) {
        failpoint::point!(BEFORE_SEND_WATCH_RESPONSE);
        self.began.get_or_insert_with(Instant::now);
    }

    /// Counts each response with its share of the time.
    fn stop(self, reads: &Reads) {
        let Some(began) = self.began else { return };
        let (batches, events) = self.events;
        let responses = batches.saturating_add(self.progress).saturating_add(self.control);
        let share = part(began.elapsed(), responses);
        for (histogram, count) in
            [(&reads.watch_send, batches), (&reads.watch_progress, self.progress), (&reads.watch_control, self.control)]
        {
            if count > 0 {
                histogram.observe_many(share, count);
            }
        }
        if events > 0 {
            let all = share.saturating_mul(u32::try_from(batches).unwrap_or(u32::MAX));
            reads.watch_send_event.observe_many(part(all, events), batches);
        }
    }
}

/// `time` divided by `parts`, or all of it if there are none.
fn part(time: Duration, parts: u64) -> Duration {
    time.checked_div(u32::try_from(parts).unwrap_or(u32::MAX)).unwrap_or(time)
}

impl StreamHandler for Watch {
    fn message(&mut self, message: Bytes, out: &mut Outbound<'_>) {
        match decode::<WatchRequest>(message).map(|request| request.request_union) {
            Ok(Some(RequestUnion::CreateRequest(request))) => self.create(request),
            Ok(Some(RequestUnion::CancelRequest(request))) => self.stream.cancel(request.watch_id),
            Ok(Some(RequestUnion::ProgressRequest(_))) => self.stream.progress(),
            Ok(None) => {}
            Err(status) => return out.finish(status),
        }
        if self.stream.is_behind() {
            if self.stream.has_many_answers() {
                self.send_answers(out);
            }
            // Once for all messages that have come: for each of thousands the log would be read, and what waits for memory measured.
            self.waker.wake();
        } else {
            self.pump(out);
        }
    }

    /// A client that sends no more requests still gets its events.
    fn half_closed(&mut self, _out: &mut Outbound<'_>) {}

    fn ready(&mut self, out: &mut Outbound<'_>) {
        self.pump(out);
    }
}

/// How many pauses lie between two times at which memory is asked for again that was refused.
const LATE_PAUSES: u32 = 20;

/// Entries of watch queues that are freed in one pause: some milliseconds of work.
const FREED_ENTRIES: usize = 1 << 16;

/// Sends progress notifications to streams until the member stops, frees what streams had queued that read too little, asks again for
/// memory for those that were refused it, and looks after snapshots that clients take nothing of.
pub(crate) fn run_progress(node: &Arc<Node>) {
    let pause = Duration::from_millis(50);
    let mut waited = Duration::ZERO;
    let mut pauses = 0_u32;
    while !node.stopping.load(Ordering::Relaxed) {
        std::thread::sleep(pause);
        waited = waited.saturating_add(pause);
        pauses = pauses.wrapping_add(1);
        node.store.hub().free_forgotten(FREED_ENTRIES);
        if pauses.is_multiple_of(LATE_PAUSES) {
            LateRooms::fire(node);
            super::snapshot::look(node);
        }
        if waited >= node.config.watch_progress_interval {
            waited = Duration::ZERO;
            node.progress_streams.fire();
        }
    }
}
