//! Whole states: offered to followers that lag, and taken over from a leader.

use super::{PowerCut, Process, disk_result};
use crate::env::Env;
use crate::mutation::Mutation;
use crate::plan::Form;
use crate::trace::trace;
use api::raftpb;
use std::sync::Arc;
use store::{Export, Prepared};

/// States that a process gives away or has received.
#[derive(Default)]
pub(crate) struct States {
    /// The newest that was offered; older ones live on in the transfers that send them.
    pub(crate) offered: Option<Arc<Export>>,
    /// Received whole, with the message that names it: waiting for Raft's word.
    received: Option<Prepared>,
    pub(crate) installed: u64,
}

impl Process {
    /// Captures a state when a follower needs one.
    pub(super) fn offer_state(&mut self, env: &mut Env) {
        if !self.member.wants_snapshot() || !self.applier.can_capture() || self.applier.applied_index() == 0 {
            return;
        }
        let export = self.applier.export();
        trace!(env, "{} offers its state at {}", self.host, export.index());
        let metadata = raftpb::SnapshotMetadata {
            conf_state: Some(export.conf_state().clone()),
            index: Some(export.index()),
            term: Some(export.term()),
        };
        self.member.offer_snapshot(&metadata);
        self.states.offered = Some(Arc::new(export));
        self.wake(env);
    }

    /// A state is here, whole and checked: Raft decides whether it is wanted. Answers whether it was taken.
    pub(crate) fn receive_state(
        &mut self,
        env: &mut Env,
        mut message: raftpb::Message,
        prepared: Prepared,
    ) -> Result<(), PowerCut> {
        if env.options.mutation == Some(Mutation::SkipsSnapshotMembers)
            && let Some(metadata) = message.snapshot.as_mut().and_then(|snapshot| snapshot.metadata.as_mut())
            && let Some(own) = env.ledger.conf_state_of.get(&self.id).filter(|own| !own.voters.is_empty())
        {
            metadata.conf_state = Some(own.clone());
        }
        self.states.received = Some(prepared);
        self.step(env, message);
        self.drain(env)?;
        // Not wanted any more, or taken.
        self.states.received = None;
        self.wake(env);
        Ok(())
    }

    /// Whether consensus waits for the disk, or is held up: nothing can be handed to it. One that never waits for its store takes
    /// no state before that is done.
    pub(crate) fn is_busy(&self, env: &Env) -> bool {
        let applies = env.plan.form == Form::ByTurn && !(self.backlog.is_empty() && self.to_apply.is_empty());
        self.blocked || applies || self.paused_until_us > env.now_us
    }

    pub(super) fn install(&mut self, env: &mut Env, index: u64, term: u64) -> Result<(), PowerCut> {
        self.apply_all(env)?;
        let Some(prepared) = self.states.received.take() else {
            panic!("{:x} is to install a state at {index} that it never received", self.id)
        };
        assert!((prepared.index(), prepared.term()) == (index, term), "Raft asks for another state than was received");
        disk_result(&self.disk, self.applier.install(prepared))?;
        self.checkpoint_index = index;
        self.states.installed += 1;
        trace!(env, "{} installed the state at {index}", self.host);
        // As Raft has them, which took them from the message and not from the state.
        env.ledger.restored_members(self.id, index, self.member.conf_state());
        env.ledger.hash(self.id, index, self.store.hash());
        self.note_members(env);
        Ok(())
    }
}
