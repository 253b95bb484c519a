//! The space quota, as the server keeps it: writes claim what they add before they are proposed, and a member that finds no space raises its
//! alarm through the log.

use super::machine::{Machine, Waiter};
use crate::env::Env;
use crate::operation::Request;
use crate::trace::trace;
use api::Message;
use api::etcdserverpb::InternalRaftRequest;
use bytes::Bytes;
use replica::Proposal;
use store::{NoSpaceAlarm, Space};

impl Machine {
    /// Claims what a client's request adds. `None` if there is no room for it.
    pub(super) fn claim_space(&mut self, env: &mut Env, data: &Bytes) -> Option<Space> {
        if !env.plan.may_fill() {
            return Some(Space::default());
        }
        let request = InternalRaftRequest::decode(data.clone()).unwrap_or_default();
        match self.store.claim_quota(store::cost(&request)) {
            Ok(space) => Some(space),
            Err(error) => {
                if error == api::Error::NoSpace {
                    self.raise_no_space(env);
                }
                None
            }
        }
    }

    /// Raises the alarm of this member.
    pub(super) fn raise_no_space(&mut self, env: &mut Env) {
        // An observer is nobody's member, and raises none.
        if self.outbox.is_some() || !self.no_space.raise(&self.store, self.id) {
            return;
        }
        trace!(env, "{} raises its alarm: no space", self.host);
        let id = env.request_id();
        let alarm = Some(NoSpaceAlarm::request(self.id));
        let request = InternalRaftRequest { header: Some(self.as_member(id)), alarm, ..Default::default() };
        let data: Bytes = request.encode_to_vec().into();
        let operation = env.history.begin(env.now_us, None, id, Request::Write(data.clone()));
        let mut waiter = Waiter::new(operation);
        waiter.raises_alarm = true;
        self.inputs.proposals.push(Proposal { id, data, waiter, term: None });
    }

    /// Notes a proposal that has failed.
    pub(super) fn not_raised(&self, waiter: &Waiter) {
        if waiter.raises_alarm {
            self.no_space.reset();
        }
    }
}
