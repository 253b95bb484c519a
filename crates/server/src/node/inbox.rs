//! What waits for the consensus thread.

use super::Done;
use api::{Error, limits};
use bytes::Bytes;
use std::sync::{Condvar, Mutex};
use std::time::Instant;

/// An entry to be put into the log, and who waits for it.
pub(super) struct Proposal {
    pub(super) id: u64,
    pub(super) data: Bytes,
    pub(super) done: Done,
}

/// Called once the member's state holds everything that was acknowledged before the read was asked for.
pub(super) type Read = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// Everything that arrived since the consensus thread last looked.
#[derive(Default)]
pub(super) struct Arrived {
    pub(super) proposals: Vec<Proposal>,
    pub(super) reads: Vec<Read>,
    /// The log may be freed below this index: the older kept checkpoint covers it.
    pub(super) release_below: Option<Released>,
    pub(super) stop: bool,
}

/// What a finished checkpoint allows.
pub(super) struct Released {
    pub(super) older_index: u64,
    pub(super) snapshot: api::walpb::Snapshot,
}

#[derive(Default)]
struct State {
    arrived: Arrived,
    bytes: usize,
    asleep: bool,
}

/// A bounded queue with one reader, who takes everything at once.
#[derive(Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
    wake: Condvar,
}

impl Inbox {
    /// Queues a proposal; gives it back when the queue is full.
    pub(super) fn propose(&self, proposal: Proposal) -> Result<(), Proposal> {
        self.push(|state| {
            let full = state.arrived.proposals.len() >= limits::PROPOSAL_QUEUE_MAX
                || state.bytes + proposal.data.len() > limits::PROPOSAL_QUEUE_BYTES_MAX;
            if full {
                return Err(proposal);
            }
            state.bytes += proposal.data.len();
            state.arrived.proposals.push(proposal);
            Ok(())
        })
    }

    /// Queues a read that needs a read index.
    pub(super) fn read(&self, read: Read) -> Result<(), Read> {
        self.push(|state| {
            if state.arrived.reads.len() >= limits::PROPOSAL_QUEUE_MAX {
                return Err(read);
            }
            state.arrived.reads.push(read);
            Ok(())
        })
    }

    /// A checkpoint is on disk.
    pub(super) fn release(&self, released: Released) {
        self.push(|state| state.arrived.release_below = Some(released));
    }

    /// The consensus thread is to end.
    pub(super) fn stop(&self) {
        self.push(|state| state.arrived.stop = true);
    }

    fn push<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = super::lock(&self.state);
        let result = change(&mut state);
        let wake = std::mem::take(&mut state.asleep);
        drop(state);
        if wake {
            self.wake.notify_one();
        }
        result
    }

    /// Takes what has arrived, waiting until `deadline` if that is nothing.
    pub(super) fn take(&self, deadline: Instant) -> Arrived {
        let mut state = super::lock(&self.state);
        loop {
            let arrived = &state.arrived;
            let nothing = arrived.proposals.is_empty()
                && arrived.reads.is_empty()
                && arrived.release_below.is_none()
                && !arrived.stop;
            let left = deadline.saturating_duration_since(Instant::now());
            if !nothing || left.is_zero() {
                state.asleep = false;
                state.bytes = 0;
                return std::mem::take(&mut state.arrived);
            }
            state.asleep = true;
            state = self.wake.wait_timeout(state, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }
}
