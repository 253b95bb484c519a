//! Snapshots on their way from a leader to a member that lags: the checkpoint first, then what the receiver lacks, piece by piece.
//!
//! A piece travels as the messages do, so a partition or the end of a process breaks the transfer; the leader is told, and Raft
//! begins another, which finds the segments that came whole.

use crate::schedule::Event;
use crate::trace::trace;
use crate::world::World;
use api::raftpb;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Export, Intake, IntakeError, Prepared};

/// Time between the sender's checks that the receiver still runs, while a snapshot is being installed.
const LOOK_US: u64 = 50_000;

/// Transfers under way.
#[derive(Default)]
pub(crate) struct Transfers {
    running: BTreeMap<u64, Transfer>,
    next: u64,
    /// Snapshots that arrived completely.
    pub(crate) arrived: u64,
    pub(crate) broken: u64,
}

struct Transfer {
    message: raftpb::Message,
    export: Arc<Export>,
    /// Host and `boot` of the sender.
    from: (usize, u64),
    to: (usize, u64),
    piece_bytes: usize,
    stage: Stage,
}

enum Stage {
    /// The checkpoint is being sent.
    Begin,
    Pieces(Box<Intake>),
    /// The receiver's consensus has the snapshot, and reports when it is installed.
    Installing,
}

/// The result of a step.
enum Step {
    On(Stage),
    /// The transfer is over; `true` if the receiver has taken the snapshot.
    Over(bool),
}

impl World {
    /// Begins to send a snapshot, as a leader's message requests.
    pub(crate) fn begin_transfer(&mut self, message: raftpb::Message, export: Arc<Export>) {
        let addresses = &self.env.addresses;
        let (Some(&from), Some(&to)) = (addresses.get(&message.from()), addresses.get(&message.to())) else { return };
        self.begin_transfer_between(from, to, message, export);
    }

    /// Begins to send a snapshot from one host to another. Returns the number of the transfer.
    pub(crate) fn begin_transfer_between(
        &mut self,
        from: usize,
        to: usize,
        message: raftpb::Message,
        export: Arc<Export>,
    ) -> Option<u64> {
        let sender = self.hosts[from].process.as_ref()?;
        let index = export.index();
        let from = (from, sender.boot);
        let to = (to, self.hosts[to].process.as_ref().map_or(0, |process| process.boot));
        // The pieces are large enough for even the slowest link to finish within a second or two.
        let least_bytes = export.segment_bytes() / 50;
        let piece_bytes = (200 + self.env.random.below(20_000)).max(least_bytes) as usize;
        let number = self.transfers.next;
        self.transfers.next += 1;
        trace!(self.env, "transfer {number} of the snapshot at {index} from {} to {}", from.0, to.0);
        let stage = Stage::Begin;
        self.transfers.running.insert(number, Transfer { message, export, from, to, piece_bytes, stage });
        self.next_piece(number);
        Some(number)
    }

    /// Ends a transfer that nobody waits for any more.
    pub(crate) fn cancel_transfer(&mut self, number: u64) {
        self.transfers.running.remove(&number);
    }

    /// Sends the next piece. A lost one is noticed because nothing arrives.
    fn next_piece(&mut self, number: u64) {
        let Some(transfer) = self.transfers.running.get(&number) else { return };
        let link = (transfer.from.0, transfer.to.0);
        // A stream repeats lost bytes, so only a broken link matters.
        let delay_us = if self.env.network.passes(link.0, link.1) && self.env.network.passes(link.1, link.0) {
            self.env.between(self.env.plan.delay_us)
        } else {
            200_000
        };
        self.env.after(delay_us, Event::Transfer { number });
    }

    /// Handles the arrival of a piece.
    pub(crate) fn transfer(&mut self, number: u64) {
        let Some(mut transfer) = self.transfers.running.remove(&number) else { return };
        let link = (transfer.from.0, transfer.to.0);
        let passes = self.env.network.passes(link.0, link.1) && self.env.network.passes(link.1, link.0);
        let both_run = self.hosts[link.0].process(transfer.from.1).is_some()
            && self.hosts[link.1].process(transfer.to.1).is_some();
        if !passes || !both_run {
            return self.end_transfer(number, &transfer, false);
        }
        let stage = std::mem::replace(&mut transfer.stage, Stage::Begin);
        match self.advance(number, &transfer, stage) {
            Step::On(stage) => {
                let is_whole = matches!(stage, Stage::Installing);
                transfer.stage = stage;
                self.transfers.running.insert(number, transfer);
                if is_whole {
                    self.env.after(LOOK_US, Event::Transfer { number });
                } else {
                    self.next_piece(number);
                }
            }
            Step::Over(ok) => self.end_transfer(number, &transfer, ok),
        }
    }

    fn advance(&mut self, number: u64, transfer: &Transfer, stage: Stage) -> Step {
        let (host, boot) = transfer.to;
        let Some(process) = self.hosts[host].process(boot) else { return Step::Over(false) };
        let store = process.machine.store.clone();
        let next = match stage {
            Stage::Begin => match transfer.export.checkpoint() {
                Ok(checkpoint) => Intake::begin(&store, transfer.message.from(), &checkpoint)
                    .map(|intake| Stage::Pieces(Box::new(intake))),
                // The sender's disk has lost power; the sender notices that itself.
                Err(_) if self.hosts[transfer.from.0].disk.is_cut() => return Step::Over(false),
                Err(error) => panic!("a snapshot cannot be sent: {error}"),
            },
            Stage::Pieces(mut intake) => match intake.needed().first().copied() {
                None => match intake.finish() {
                    Ok(prepared) => {
                        self.hand_in(number, transfer, prepared);
                        Ok(Stage::Installing)
                    }
                    Err(error) => Err(error),
                },
                Some((segment, offset, length)) => {
                    let length = (length as usize).min(transfer.piece_bytes);
                    match transfer.export.read(segment, offset, length) {
                        Ok(bytes) => intake.write(segment, offset, &bytes).map(|()| Stage::Pieces(intake)),
                        Err(_) if self.hosts[transfer.from.0].disk.is_cut() => return Step::Over(false),
                        Err(error) => panic!("a snapshot cannot be sent: {error}"),
                    }
                }
            },
            Stage::Installing => Ok(Stage::Installing),
        };
        match next {
            Ok(stage) => Step::On(stage),
            Err(error) => self.refuse(transfer, error),
        }
    }

    /// Checks why the receiver refuses a piece. The reason may only be newer data at the receiver, a later transfer, or
    /// a power cut.
    fn refuse(&mut self, transfer: &Transfer, error: IntakeError) -> Step {
        let (host, boot) = transfer.to;
        trace!(self.env, "{host} does not take the snapshot: {error}");
        if self.hosts[host].disk.is_cut() || self.hosts[host].disk.errors() > 0 {
            self.with(host, boot, |_, _| Err(crate::process::PowerCut));
            return Step::Over(false);
        }
        let applied = self.hosts[host].process(boot).map_or(0, |process| process.machine.applier.applied_index());
        let is_old = applied >= transfer.export.index();
        assert!(is_old || matches!(error, IntakeError::Superseded), "{host} does not take a snapshot: {error}");
        Step::Over(false)
    }

    /// Passes the complete snapshot to the receiver's consensus.
    fn hand_in(&mut self, number: u64, transfer: &Transfer, prepared: Prepared) {
        let (host, boot) = transfer.to;
        if self.env.plan.cuts_in_write() && self.env.random.chance(15) {
            // The power may be cut anywhere between the first file of the snapshot and the log's record of it.
            let steps = self.env.random.below(12);
            let disk = &self.hosts[host].disk;
            disk.cut_at(disk.operations() + steps);
        }
        let message = transfer.message.clone();
        self.with(host, boot, |process, env| {
            process.receive_snapshot(env, message, prepared, number);
            Ok(())
        });
    }

    /// Handles the receiver's result of a snapshot. The sender may have given up.
    pub(crate) fn installed(&mut self, number: u64, ok: bool) {
        self.transfers.arrived += u64::from(ok);
        if let Some(transfer) = self.transfers.running.remove(&number) {
            self.end_transfer(number, &transfer, ok);
        }
    }

    fn end_transfer(&mut self, number: u64, transfer: &Transfer, ok: bool) {
        trace!(self.env, "transfer {number} is over: {ok}");
        self.transfers.broken += u64::from(!ok);
        if self.end_fed_transfer(number, ok) {
            return;
        }
        let ((host, boot), to) = (transfer.from, transfer.message.to());
        self.with(host, boot, |process, env| {
            process.snapshot_sent(env, to, ok);
            Ok(())
        });
    }

    /// Snapshots that members have installed.
    pub(crate) fn installs(&self) -> u64 {
        self.transfers.arrived
    }
}
