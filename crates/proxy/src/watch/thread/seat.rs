//! The clients' streams as the thread has them: what they are told, and what they have no room for.

use api::Error;
use budget::Claim;
use rpc::Status;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Command, Thread};
use crate::watch::client::{Mailbox, Pushed};
use crate::watch::{CircleId, ClientId, Telling};

/// How long a client may be without any room before its stream ends.
const PATIENCE: Duration = Duration::from_secs(5);

/// A stream of a client.
pub(super) struct Seat {
    pub(super) mailbox: Arc<Mailbox>,
    /// For its watches, and for the stream itself.
    claim: Claim,
    /// What of it is for the stream.
    own_bytes: u64,
    /// It had no room for events, and gets none before it is resumed.
    is_stalled: bool,
    /// Since when there was no room for it at all, and when that was found last.
    starved: Option<(Instant, Instant)>,
}

impl Seat {
    /// `claim` is for the stream itself.
    pub(super) fn new(mailbox: Arc<Mailbox>, claim: Claim) -> Seat {
        Seat { mailbox, own_bytes: claim.bytes(), claim, is_stalled: false, starved: None }
    }

    /// Claims what its watches take. False if there is no room.
    pub(super) fn claims(&mut self, bytes: usize) -> bool {
        self.claim.resize(self.own_bytes.saturating_add(bytes as u64))
    }

    /// It takes events again.
    pub(super) fn resume(&mut self) {
        self.is_stalled = false;
    }
}

impl Thread {
    /// Looks whether there is room now for a client that had none, and ends its stream after a while.
    pub(super) fn retry(&mut self, id: ClientId) {
        let Some(seat) = self.clients.get(&id).filter(|seat| seat.is_stalled) else { return };
        if seat.mailbox.is_sending() {
            // Nobody else keeps it from anything. If it takes nothing at all, that ends its connection.
            return self.starved.push(id);
        }
        if seat.starved.is_none_or(|(since, _)| since.elapsed() < PATIENCE) {
            return self.asked.add(id, Command::Resume(id));
        }
        let circle = self.circles.close(id);
        self.end(id, Error::TooManyRequests.into());
        if let Some(circle) = circle {
            self.settle(circle);
        }
    }

    /// Tells a client something. Once there was no room for events, it gets no further ones, and hears of no progress beyond them, before
    /// it is resumed.
    pub(super) fn tell(&mut self, circle: CircleId, id: ClientId, telling: Telling) {
        let Some(seat) = self.clients.get_mut(&id) else { return };
        let Telling::Events { watch, from, .. } = telling else {
            if !(seat.is_stalled && telling.is_progress()) {
                seat.mailbox.push(telling);
            }
            return;
        };
        let pushed = if seat.is_stalled { Pushed::Full } else { seat.mailbox.push(telling) };
        if pushed == Pushed::Taken {
            seat.starved = None;
            return;
        }
        if pushed == Pushed::Starved {
            let now = Instant::now();
            // Long ago is another time.
            let before = seat.starved.filter(|(_, last)| now.duration_since(*last) < PATIENCE);
            seat.starved = Some((before.map_or(now, |(since, _)| since), now));
            self.starved.push(id);
        }
        if pushed == Pushed::Sending {
            seat.starved = None;
            self.starved.push(id);
        }
        seat.is_stalled = true;
        if let Some(hub) = self.circles.hub_mut(circle) {
            hub.untell(id, watch, from);
        }
    }

    pub(super) fn end(&mut self, id: ClientId, status: Status) {
        self.circles.forget(id);
        if let Some(seat) = self.clients.remove(&id) {
            seat.mailbox.end(status);
        }
    }
}
