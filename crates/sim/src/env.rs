//! The environment that members, clients and faults share: the clock, randomness, the network, and the observers.

use crate::happened::Happened;
use crate::history::History;
use crate::ledger::Ledger;
use crate::network::{Network, between};
use crate::operation::Answer;
use crate::plan::{Options, Plan};
use crate::schedule::{Event, Schedule};
use crate::trace::Trace;
use api::raftpb;
use disk::sim::Random;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::Export;

/// The world around the members.
pub(crate) struct Env {
    pub(crate) now_us: u64,
    pub(crate) random: Random,
    pub(crate) schedule: Schedule,
    pub(crate) network: Network,
    pub(crate) ledger: Ledger,
    pub(crate) history: History,
    pub(crate) happened: Happened,
    pub(crate) trace: Trace,
    pub(crate) plan: Plan,
    pub(crate) options: Options,
    /// The host of each member.
    pub(crate) addresses: BTreeMap<u64, usize>,
    /// Messages that were lost visibly, as sender and receiver: the sender is told.
    pub(crate) unreachable: Vec<(u64, u64)>,
    /// Snapshots to send.
    pub(crate) snapshots: Vec<(raftpb::Message, Arc<Export>)>,
    /// Transfers of snapshots whose receiver has reported the result.
    pub(crate) installed: Vec<(u64, bool)>,
    pub(crate) next_request: u64,
}

impl Env {
    pub(crate) fn after(&mut self, delay_us: u64, event: Event) {
        self.schedule.at(self.now_us + delay_us, event);
    }

    pub(crate) fn between(&mut self, bounds: (u64, u64)) -> u64 {
        between(&mut self.random, bounds)
    }

    pub(crate) fn request_id(&mut self) -> u64 {
        self.next_request += 1;
        self.next_request
    }

    /// Sends messages of a member.
    pub(crate) fn send(&mut self, from: u64, messages: Vec<raftpb::Message>) {
        for message in messages {
            self.ledger.sends(from, &message);
            self.deliver(from, message);
        }
    }

    fn deliver(&mut self, from: u64, message: raftpb::Message) {
        let (Some(&from_host), Some(&to)) = (self.addresses.get(&from), self.addresses.get(&message.to())) else {
            return;
        };
        // A transport may lose a proposal, but no transport sends one twice: it would be executed twice.
        let once = message.r#type() == raftpb::MessageType::MsgProp;
        let arrivals = self.network.arrivals(&mut self.random, self.now_us, (from_host, to), once);
        if arrivals.is_empty() {
            crate::trace::trace!(self, "{from_host}->{to} lost {}", crate::show::message(&message));
            if self.random.chance(30) {
                self.unreachable.push((from, message.to()));
            }
        }
        for time_us in arrivals {
            self.schedule.at(time_us, Event::Deliver { from, to, message: Box::new(message.clone()) });
        }
    }

    /// Sends an answer to the client of an operation.
    pub(crate) fn answer(&mut self, operation: usize, answer: Answer) {
        let delay_us = between(&mut self.random, (20, 800));
        self.after(delay_us, Event::Answered { operation, answer: Box::new(answer) });
    }
}
