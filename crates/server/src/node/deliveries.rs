//! Outcomes on their way to those who wait for them.
//!
//! Who waits has come from a request thread, and what its answer touches is in the caches of that thread's core. So the outcomes of a
//! batch are parted by thread, and each thread encodes and sends its own.

use super::{Done, Outcome};
use crate::client_share;
use rpc::Home;
use std::time::Duration;

/// The outcomes of a batch.
#[derive(Default)]
pub(super) struct Deliveries {
    by_home: Vec<(Home, Vec<Delivery>)>,
}

/// The outcome of one proposal.
pub(super) struct Delivery {
    pub(super) done: Done,
    pub(super) outcome: Outcome,
    /// What applying it took of the processor; 0 where that is not measured.
    pub(super) worked: Duration,
}

impl Delivery {
    fn end(self) {
        client_share::worked(self.worked);
        self.done.end(self.outcome);
        client_share::unmeasured();
    }
}

impl Deliveries {
    /// Adds one for a request thread. Where `home` is none, or the thread that this is called on, it is delivered at once.
    pub(super) fn add(&mut self, home: Option<Home>, delivery: Delivery) {
        let Some(home) = home.filter(|home| Home::here() != Some(*home)) else { return delivery.end() };
        match self.by_home.iter_mut().find(|(other, _)| *other == home) {
            Some((_, deliveries)) => deliveries.push(delivery),
            None => self.by_home.push((home, vec![delivery])),
        }
    }

    /// Gives each thread its own.
    pub(super) fn send(self) {
        for (home, deliveries) in self.by_home {
            home.give(move || deliveries.into_iter().for_each(Delivery::end));
        }
    }
}
