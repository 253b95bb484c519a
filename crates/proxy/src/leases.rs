//! Lease keep-alives: those of clients with the same identity share one stream to a member.
//!
//! Every request of a client is a request to the member, and every answer goes to the client whose request it answers: nothing is kept
//! alive that its client has stopped keeping alive.

mod circle;
mod client;

pub(crate) use client::KeepingAlive;

use budget::Claim;
use parking_lot::Mutex;
use rpc::{Origin, StreamWaker};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::identity::Identity;
use crate::places::{Place, Places};
use crate::upstream::Upstream;
use circle::keep_circle;
use client::Mailbox;

/// A stream of a client.
type ClientId = u64;

/// What a client's stream tells its circle.
enum Command {
    Open(ClientId, Arc<Mailbox>),
    /// A lease that is to be kept alive.
    Ask(ClientId, i64),
    /// The client asks for nothing more.
    HalfClose(ClientId),
    Close(ClientId),
    /// The circle has lost its last place to another identity.
    Lost,
}

/// The circles of all identities that have places.
#[derive(Debug, Default)]
struct Circles {
    each: HashMap<Identity, Circle>,
    places: Places<Identity>,
    last: u64,
}

#[derive(Debug)]
struct Circle {
    /// Tells it from an earlier one of the same identity.
    number: u64,
    commands: UnboundedSender<Command>,
    /// One of each origin of its clients.
    places: Vec<Place>,
}

/// A circle as its own task knows it.
#[derive(Clone, Debug)]
struct Name {
    identity: Identity,
    number: u64,
}

/// Keeps leases alive for all clients.
#[derive(Clone, Debug)]
pub(crate) struct Leases(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    circles: Mutex<Circles>,
    /// Circles that begin, for the thread.
    begin: UnboundedSender<(Name, UnboundedReceiver<Command>)>,
    last: AtomicU64,
}

impl Leases {
    /// Starts the thread that has the streams to members.
    ///
    /// # Errors
    /// If there can be none.
    pub(crate) fn start(upstream: Arc<Upstream>) -> io::Result<Leases> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (begin, mut beginning) = unbounded_channel::<(Name, UnboundedReceiver<Command>)>();
        let shared = Arc::new(Shared { circles: Mutex::default(), begin, last: AtomicU64::new(0) });
        let of_thread = Arc::downgrade(&shared);
        std::thread::Builder::new().name("leases".into()).spawn(move || {
            runtime.block_on(async {
                while let Some((name, commands)) = beginning.recv().await {
                    let Some(shared) = of_thread.upgrade() else { return };
                    tokio::spawn(keep_circle(upstream.clone(), name, commands, shared));
                }
            });
        })?;
        Ok(Leases(shared))
    }

    /// A stream of a client begins, with what it takes by itself and a claim for its requests.
    pub(crate) fn open(
        &self,
        identity: Identity,
        origin: Origin,
        waker: StreamWaker,
        claims: (Claim, Claim),
    ) -> KeepingAlive {
        let id = self.0.last.fetch_add(1, Ordering::Relaxed);
        let mailbox = Arc::new(Mailbox::new(move || waker.wake()));
        let mut circles = self.0.circles.lock();
        let commands = self.0.enter(&mut circles, identity, origin);
        // Under the lock: a circle ends only if nothing was sent to it.
        let _ = commands.send(Command::Open(id, mailbox.clone()));
        KeepingAlive::new(id, mailbox, commands, claims)
    }
}

impl Shared {
    /// The circle of an identity, for a client of an origin. It begins if there is none; another one may lose its last place for it.
    fn enter(&self, circles: &mut Circles, identity: Identity, origin: Origin) -> UnboundedSender<Command> {
        let Circles { each, places, last } = circles;
        let circle = each.entry(identity.clone()).or_insert_with(|| {
            let (commands, queue) = unbounded_channel();
            *last = last.saturating_add(1);
            let number = *last;
            // The thread never ends before the process.
            let _ = self.begin.send((Name { identity: identity.clone(), number }, queue));
            Circle { number, commands, places: Vec::new() }
        });
        let commands = circle.commands.clone();
        let lost = places.join(&mut circle.places, origin, identity);
        if let Some(identity) = lost
            && each.get_mut(&identity).is_some_and(|circle| !places.are_left(&mut circle.places))
            && let Some(lost) = each.remove(&identity)
        {
            // It may be about to end by itself.
            let _ = lost.commands.send(Command::Lost);
        }
        commands
    }

    /// A member has answered the clients of a circle.
    fn know(&self, name: &Name) {
        let circles = &mut *self.circles.lock();
        if let Some(circle) = circles.each.get_mut(&name.identity).filter(|circle| circle.number == name.number) {
            circle.places.iter_mut().for_each(|place| circles.places.know(place));
        }
    }

    /// Ends a circle, unless something was sent to it meanwhile: that is returned.
    fn end(&self, name: &Name, commands: &mut UnboundedReceiver<Command>) -> Option<Command> {
        let mut circles = self.circles.lock();
        let more = commands.try_recv().ok();
        let is_own = circles.each.get(&name.identity).is_some_and(|circle| circle.number == name.number);
        if more.is_none()
            && is_own
            && let Some(circle) = circles.each.remove(&name.identity)
        {
            circle.places.iter().for_each(|place| circles.places.leave(place));
        }
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::PLACES_MAX;

    fn identity(token: usize) -> Identity {
        Identity::of(&[("token", token.to_string())].into_iter().collect())
    }

    #[test]
    fn strangers_with_any_number_of_identities_keep_nobody_out() {
        let (begin, mut begun) = unbounded_channel();
        let shared = Shared { circles: Mutex::default(), begin, last: AtomicU64::new(0) };
        let open = |token, host: u8| {
            shared.enter(&mut shared.circles.lock(), identity(token), Origin::of(Some([10, 0, 0, host].into())));
        };
        open(1_000_000, 2);
        let (mine, mut of_mine) = begun.try_recv().expect("a circle");
        shared.know(&mine);
        (0..2 * PLACES_MAX).for_each(|token| open(token, 1));
        assert!(of_mine.try_recv().is_err(), "it keeps its place");
        let (name, mut of_oldest) = begun.try_recv().expect("a circle");
        assert!(matches!(of_oldest.try_recv(), Ok(Command::Lost)));
        assert_eq!(shared.circles.lock().each.len(), PLACES_MAX);
        // One that has lost its place does not take that of its successor along.
        open(0, 1);
        assert!(shared.end(&name, &mut of_oldest).is_none());
        assert!(shared.circles.lock().each.contains_key(&identity(0)));
        assert!(shared.end(&mine, &mut of_mine).is_none());
        assert_eq!(shared.circles.lock().each.len(), PLACES_MAX - 1);
    }

    #[test]
    fn what_clients_of_many_origins_share_is_not_for_one_of_them_to_lose() {
        let (begin, mut begun) = unbounded_channel();
        let shared = Shared { circles: Mutex::default(), begin, last: AtomicU64::new(0) };
        let open = |identity, host: u8| {
            shared.enter(&mut shared.circles.lock(), identity, Origin::of(Some([10, 0, 0, host].into())));
        };
        let nobody = || Identity::of(&Default::default());
        open(nobody(), 1);
        let (name, mut commands) = begun.try_recv().expect("a circle");
        open(nobody(), 2);
        assert!(begun.try_recv().is_err(), "it is the same");
        (0..2 * PLACES_MAX).for_each(|token| open(identity(token), 1));
        assert!(commands.try_recv().is_err(), "it has lost its place");
        assert!(shared.circles.lock().each.len() <= PLACES_MAX);
        shared.end(&name, &mut commands);
        assert!(!shared.circles.lock().each.contains_key(&nobody()));
    }
}
