//! The members, as clients of them that each thread has of its own.

use client::{Client, Endpoint};
use parking_lot::RwLock;
use rpc::Status;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use telemetry::logging::{self, Pace, Value};
use tokio::sync::Notify;

/// What a member may send on a stream that is passed on before anything of it was taken. Each stream has this much claimed.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 64 << 10;

/// A client of a thread, whose it is and for which endpoints.
type Kept = RefCell<Option<(u64, u64, Client)>>;

thread_local! {
    /// The client of this thread: a call and its answer stay on the thread of their client.
    static CLIENT: Kept = const { RefCell::new(None) };
    /// The same for streams that are passed on.
    static STREAM_CLIENT: Kept = const { RefCell::new(None) };
}

/// Whom the proxy asks.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// Tells proxies of one process apart.
    number: u64,
    /// How often the endpoints have changed.
    generation: AtomicU64,
    options: RwLock<client::Options>,
    changed: Notify,
}

impl Upstream {
    /// # Errors
    /// If no client can be made, because of its files for instance.
    pub(crate) fn new(options: client::Options) -> Result<Upstream, client::OptionsError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Client::new(options.clone())?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Ok(Upstream { number, generation: AtomicU64::new(0), options: RwLock::new(options), changed: Notify::new() })
    }

    /// The client of this thread.
    ///
    /// # Errors
    /// If none can be made any more.
    pub(crate) fn client(&self) -> Result<Client, Status> {
        CLIENT.with_borrow_mut(|kept| self.kept(kept, None))
    }

    /// The client of this thread for streams that are passed on: [`STREAM_WINDOW_BYTES`] may be on their way to each.
    ///
    /// # Errors
    /// If none can be made any more.
    pub(crate) fn stream_client(&self) -> Result<Client, Status> {
        STREAM_CLIENT.with_borrow_mut(|kept| self.kept(kept, Some(STREAM_WINDOW_BYTES)))
    }

    fn kept(&self, kept: &mut Option<(u64, u64, Client)>, stream_window_bytes: Option<u32>) -> Result<Client, Status> {
        let generation = self.generation.load(Ordering::Acquire);
        match kept {
            Some((number, of, client)) if *number == self.number && *of == generation => Ok(client.clone()),
            _ => {
                let unusable = |error: client::OptionsError| Status::new(api::Code::Unavailable, error.to_string());
                let options = client::Options { stream_window_bytes, ..self.options.read().clone() };
                let client = Client::new(options).map_err(unusable)?;
                *kept = Some((self.number, generation, client.clone()));
                Ok(client)
            }
        }
    }

    /// How many members there are to ask.
    pub(crate) fn members(&self) -> usize {
        self.options.read().endpoints.len()
    }

    /// The largest request that is passed on, in bytes.
    pub(crate) fn request_bytes_max(&self) -> usize {
        self.options.read().request_bytes_max
    }

    /// Asks these members from now on; what is under way goes on where it is. False if they are the same as before.
    pub(crate) fn set_endpoints(&self, endpoints: Vec<Endpoint>) -> bool {
        let mut options = self.options.write();
        if endpoints.is_empty() || endpoints == options.endpoints {
            return false;
        }
        options.endpoints = endpoints;
        self.generation.fetch_add(1, Ordering::Release);
        self.changed.notify_waiters();
        true
    }

    /// Waits until other members are to be asked.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// Says in the log that no member can be reached, if that is why a call has failed.
pub(crate) fn tell_unreached(status: &Status) {
    static PACE: Pace = Pace::new();
    if client::is_unreached(status)
        && let Some(left_out) = PACE.line()
    {
        let fields = [("error", Value::from(&*status.message)), ("lines-left-out", left_out.into())];
        logging::warn("could not pass on a call", &fields);
    }
}

/// What members have refused in a row: whether they all do.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// By voters.
    voters: usize,
    learners: usize,
}

impl Refusals {
    /// How often learners are asked before they speak for all: with the pauses of streams, three seconds. As long as no other
    /// member is connected, each attempt goes to the same one.
    const LEARNERS_MAX: usize = 8;

    /// Counts one more. True if another member will not say anything else.
    pub(crate) fn are_final(&mut self, status: &Status, members: usize) -> bool {
        let is_learner = client::is_from_learner(status);
        let (count, most) = match is_learner && members > 1 {
            true => (&mut self.learners, members.max(Refusals::LEARNERS_MAX)),
            false => (&mut self.voters, members),
        };
        *count = count.saturating_add(1);
        *count >= most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_learner_that_is_connected_first_does_not_speak_for_all() {
        let learner = Status::from(api::Error::NotSupportedForLearner);
        let mut refusals = Refusals::default();
        assert_eq!((0..10).find(|_| refusals.are_final(&learner, 2)), Some(7));
        assert!(Refusals::default().are_final(&learner, 1), "there is nobody else");
        let (mut refusals, token) = (Refusals::default(), Status::from(api::Error::InvalidAuthToken));
        assert_eq!((0..10).find(|_| refusals.are_final(&token, 3)), Some(2));
    }

    #[test]
    fn a_thread_keeps_its_client_until_the_members_change() {
        let endpoints = |text: &str| vec![text.parse::<Endpoint>().expect("an endpoint")];
        let options = client::Options { endpoints: endpoints("127.0.0.1:1"), ..client::Options::default() };
        let upstream = Upstream::new(options).expect("options");
        let shown = || {
            let client = upstream.client().expect("a client");
            client.endpoints().map(ToString::to_string).collect::<Vec<_>>()
        };
        let before = shown();
        assert!(!upstream.set_endpoints(endpoints("127.0.0.1:1")) && !upstream.set_endpoints(Vec::new()));
        assert_eq!(shown(), before);
        assert!(upstream.set_endpoints(endpoints("127.0.0.1:2")));
        assert_ne!(shown(), before);
    }
}
