//! Memory that clients have the proxy hold: one budget for all of them.

use api::{Error, limits};
use budget::{Budget, Claim, Pool};
use bytes::Bytes;
use parking_lot::Mutex;
use rpc::client::{Hold, Room};
use rpc::{Address, Status};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long a request waits for room.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a call takes beside its message and its metadata, in bytes.
const CALL_BYTES: usize = 2_048;

/// What a stream takes beside its identity, in bytes.
const STREAM_BYTES: usize = 1_024;

/// The budget.
#[derive(Clone, Debug)]
pub(crate) struct Held(Arc<Budget>);

impl Held {
    /// A budget of so many bytes, and the thread that grants what waits.
    ///
    /// # Errors
    /// If there can be no thread.
    pub(crate) fn start(bytes_max: u64) -> io::Result<Held> {
        let budget = Budget::new(bytes_max, PATIENCE);
        let granting = budget.clone();
        std::thread::Builder::new().name("budget".into()).spawn(move || granting.run())?;
        Ok(Held(budget))
    }

    /// What a call takes until it is answered, if there is room.
    pub(crate) fn call(&self, message_bytes: usize, client: Address) -> Option<Claim> {
        self.0.try_claim(Pool::Requests, cost(message_bytes), Some(client))
    }

    /// The same once there is room. What waits is held too, in a part of the budget that requests have for nothing else.
    ///
    /// # Errors
    /// Too many requests: too much waits, or for too long.
    pub(crate) async fn call_later(&self, message_bytes: usize, client: Address) -> Result<Claim, Status> {
        let bytes = cost(message_bytes);
        let Some(_waiting) = self.0.try_claim(Pool::Short, bytes, Some(client)) else {
            return Err(Error::TooManyRequests.into());
        };
        Ok(self.0.claim(Pool::Requests, bytes, client).await?)
    }

    /// What a stream takes by itself, with an identity of so many bytes.
    ///
    /// # Errors
    /// Too many requests: there is no room.
    pub(crate) fn begun(&self, identity_bytes: usize, client: Address) -> Result<Claim, Status> {
        let mut claim = self.0.request(client);
        let bytes = identity_bytes.saturating_add(STREAM_BYTES) as u64;
        if claim.resize(bytes) { Ok(claim) } else { Err(Error::TooManyRequests.into()) }
    }

    /// A claim of nothing yet for requests of a stream.
    pub(crate) fn requests(&self, client: Address) -> Claim {
        self.0.request(client)
    }

    /// A claim of nothing yet for what a stream's client has not taken.
    pub(crate) fn stream(&self, client: Address) -> Claim {
        self.0.long_answer(client)
    }

    /// An answer that is in memory already, once more for this client.
    ///
    /// # Errors
    /// Too many requests: there is no room.
    pub(crate) fn again(&self, answer: Bytes, client: Address) -> Result<Bytes, Status> {
        let claim = self.answer(answer.len(), answer.len(), client)?;
        Ok(match claim {
            Some(claim) => claim.hold(answer),
            None => answer,
        })
    }

    /// Room for answers to a client: they are not taken in before there is any.
    pub(crate) fn answers(&self, client: Address) -> Room {
        let held = self.clone();
        Arc::new(move |bytes| {
            let claim = held.answer(bytes, bytes, client)?;
            Ok(claim.map(|claim| Box::new(move |message| claim.hold(message)) as Hold))
        })
    }

    /// Room for an answer whose claim is kept apart, of so many copies of it. One that is written anew for its client is there twice for a
    /// while.
    pub(crate) fn apart(&self, copies: usize, client: Address) -> (Room, Kept) {
        let (held, kept) = (self.clone(), Kept::default());
        let keep = kept.clone();
        let room: Room = Arc::new(move |bytes| {
            let claim = held.answer(bytes, bytes.saturating_mul(copies), client);
            let claim = claim.inspect_err(|_| keep.0.lock().was_refused = true)?;
            let keep = keep.clone();
            Ok(claim.map(|claim| {
                Box::new(move |message| {
                    keep.0.lock().claim = Some(claim);
                    message
                }) as Hold
            }))
        });
        (room, kept)
    }

    /// A claim of `claimed` bytes for an answer of so many; none if it is short.
    fn answer(&self, bytes: usize, claimed: usize, client: Address) -> Result<Option<Claim>, Status> {
        if bytes <= limits::BUDGET_FREE_BYTES {
            return Ok(None);
        }
        let claimed = claimed as u64;
        let pool = Pool::of_answer(claimed);
        let claim = self.0.try_claim(pool, claimed, Some(client));
        // One that is larger than all that there is for answers is taken in alone.
        let is_alone = || pool == Pool::Long && self.0.held(pool) == 0;
        let claim = claim.or_else(|| is_alone().then(|| self.0.claim_anyway(None, claimed)));
        if claim.is_none() {
            self.0.refused(pool, claimed, client);
        }
        claim.map(Some).ok_or_else(|| Error::TooManyRequests.into())
    }

    /// Whether answers were refused a moment ago for lack of memory that `client` may have.
    pub(crate) fn is_short(&self, client: Address) -> bool {
        self.0.is_waited_for(client)
    }

    /// The usage of each pool, for the metrics.
    pub(crate) fn usage(&self) -> impl Iterator<Item = budget::PoolUsage> {
        self.0.usage().into_iter()
    }
}

/// The claim of an answer, apart from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(Arc<Mutex<Apart>>);

#[derive(Debug, Default)]
struct Apart {
    claim: Option<Claim>,
    was_refused: bool,
}

impl Kept {
    /// Whether there was no room.
    pub(crate) fn was_refused(&self) -> bool {
        self.0.lock().was_refused
    }

    /// The answer with what of the claim it takes.
    pub(crate) fn hold(&self, message: Bytes) -> Bytes {
        match self.0.lock().claim.take() {
            Some(mut claim) => {
                // Less is always granted; it is no longer than it was.
                claim.resize(message.len().min(claim.bytes() as usize) as u64);
                claim.hold(message)
            }
            None => message,
        }
    }
}

fn cost(message_bytes: usize) -> u64 {
    message_bytes.saturating_add(CALL_BYTES) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(port: u16) -> Address {
        Address::Tcp(([10, 0, 0, 1], port).into())
    }

    #[tokio::test]
    async fn requests_wait_for_room_and_are_refused_when_too_much_waits() {
        // A quarter for requests and for what waits each.
        let held = Held::start(4 << 20).expect("a thread");
        let mut calls: Vec<Claim> = std::iter::from_fn(|| held.call(100 << 10, client(1))).take(100).collect();
        assert!((5..=10).contains(&calls.len()), "{}", calls.len());
        let mut waiting = Box::pin(held.call_later(100 << 10, client(1)));
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut waiting).await.is_err(), "there is no room");
        calls.clear();
        waiting.await.expect("there is room");
        // As much waits as there is room for; who comes then is refused at once.
        let _calls: Vec<Claim> = std::iter::from_fn(|| held.call(100 << 10, client(2))).take(100).collect();
        let mut all: Vec<_> = (0..40).map(|_| Box::pin(held.call_later(100 << 10, client(2)))).collect();
        let mut refused = 0;
        for call in &mut all {
            refused += match tokio::time::timeout(Duration::ZERO, call).await {
                Ok(Err(status)) => usize::from(status.message == Error::TooManyRequests.message()),
                Ok(Ok(_)) => panic!("there is no room"),
                Err(_) => 0,
            };
        }
        assert!((30..=35).contains(&refused), "{refused}");
    }

    #[test]
    fn answers_are_held_until_they_are_gone() {
        let held = Held::start(4 << 20).expect("a thread");
        let room = held.answers(client(1));
        assert!(room(100).expect("free").is_none());
        let hold = room(600 << 10).expect("room").expect("a claim");
        let message = hold(Bytes::from(vec![0; 600 << 10]));
        assert!(room(600 << 10).is_err(), "more than a connection may have");
        assert!(held.answers(client(2))(100 << 20).is_err(), "not alone");
        drop(message);
        let alone = held.answers(client(2))(100 << 20).expect("alone").expect("a claim");
        assert!(held.answers(client(3))(600 << 10).is_err(), "all of it is taken");
        drop(alone);
        assert!(held.answers(client(3))(600 << 10).is_ok());
    }

    #[test]
    fn memory_is_short_for_a_while_after_a_refusal() {
        let held = Held::start(4 << 20).expect("a thread");
        let other = |host: u8, port: u16| Address::Tcp(([10, 0, 0, host], port).into());
        let answer = |client| held.answer(500 << 10, 500 << 10, client);
        let first = answer(other(1, 1)).expect("room").expect("a claim");
        assert!(answer(other(1, 1)).is_err() && !held.is_short(other(1, 1)), "it has its own share");
        let second = answer(other(1, 2)).expect("room").expect("a claim");
        assert!(answer(other(1, 3)).is_err(), "its host has its share");
        assert!(held.is_short(other(1, 1)) && !held.is_short(other(2, 1)), "nobody else can make room for it");
        let others = [1, 2].map(|port| answer(other(2, port)).expect("room").expect("a claim"));
        assert!(answer(other(3, 1)).is_err(), "two hosts have all");
        assert!(held.is_short(other(1, 1)) && held.is_short(other(2, 1)));
        assert_eq!(held.usage().map(|pool| pool.refusals).sum::<u64>(), 3);
        drop((first, second, others));
    }

    #[test]
    fn answers_that_are_written_anew_are_held_until_they_are_gone() {
        let held = Held::start(4 << 20).expect("a thread");
        let bytes = |held: &Held| held.usage().map(|pool| pool.held_bytes).sum::<u64>();
        let (room, kept) = held.apart(2, client(1));
        let hold = room(200 << 10).expect("room").expect("a claim");
        let message = hold(Bytes::from(vec![0; 200 << 10]));
        assert_eq!(bytes(&held), 400 << 10, "there are two of it");
        let anew = kept.hold(message.slice(..150 << 10));
        drop((room, kept));
        assert_eq!((anew.len(), bytes(&held)), (150 << 10, 150 << 10));
        drop(anew);
        assert_eq!(bytes(&held), 0);
    }
}
