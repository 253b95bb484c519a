//! Configuration changes: checked here, decided by the log.

use super::remote::{self, Promoted};
use super::rules::{self, Health};
use crate::node::{For, Node, Waits, Weight};
use api::Error;
use api::raftpb::{ConfChange, ConfChangeType};
use peer::client::Kept;
use rpc::Address;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use store::{ConfChangeContext, Member};
use telemetry::logging::{self, Value};

/// A member counts as connected once the connection to it has been up for this long.
const CONNECTED_FOR: Duration = Duration::from_secs(5);
/// Pause before another member is asked again.
const RETRY: Duration = Duration::from_millis(100);

/// The members after a change, or why there is none.
pub(crate) type Changed = Result<Vec<Member>, Error>;
/// Receives the members after a change, or the error.
pub(crate) type Done = Box<dyn Waits<Changed>>;
/// A new member and the members with it, or why there is none.
pub(crate) type Added = Result<(Member, Vec<Member>), Error>;

/// All members, by id.
pub(crate) fn members(node: &Node) -> Vec<Member> {
    node.store.members().members.into_values().collect()
}

fn check(node: &Node, rule: impl FnOnce(&Health<'_>) -> Result<(), Error>) -> Result<(), Error> {
    // An observer has no connections to members: the leader checks what it passes on.
    if !node.config.strict_reconfig || node.is_observer() {
        return Ok(());
    }
    let members = members(node);
    let connected =
        |id| id == node.member_id || node.active_since(id).is_some_and(|since| since.elapsed() > CONNECTED_FOR);
    rule(&Health { members: &members, connected: &connected })
}

/// Whether the current members allow a change that is about to be proposed. How long the connections have been up was
/// checked when the change was requested; now they need only be up.
pub(crate) fn may_be(node: &Node, change: &ConfChange) -> Result<(), Error> {
    let (members, id) = (members(node), change.node_id());
    if change.r#type() == ConfChangeType::ConfChangeAddLearnerNode {
        // Another one that was requested at the same moment may have come before it, and with both of them neither would start.
        has_room_for_learner(node, &members)?;
    }
    if !node.config.strict_reconfig {
        return Ok(());
    }
    let is_active = |id| id == node.member_id || node.active_since(id).is_some();
    let health = Health { members: &members, connected: &is_active };
    let is_promotion = || ConfChangeContext::of(change).is_ok_and(|context| context.is_promote);
    match change.r#type() {
        // The change may be proposed: applying it fails because there is no such member.
        ConfChangeType::ConfChangeRemoveNode if members.iter().all(|member| member.id != id) => Ok(()),
        ConfChangeType::ConfChangeRemoveNode => rules::may_remove(&health, id, node.member_id, is_active(id)),
        ConfChangeType::ConfChangeAddNode if is_promotion() => rules::may_promote(&health),
        ConfChangeType::ConfChangeAddNode => rules::may_add(&health, false),
        ConfChangeType::ConfChangeAddLearnerNode => rules::may_add(&health, true),
        ConfChangeType::ConfChangeUpdateNode => Ok(()),
    }
}

fn refused(what: &str, id: u64, error: Error) {
    logging::warn(
        "rejecting a configuration change",
        &[("change", what.into()), ("member-id", Value::Id(id)), ("error", error.message().into())],
    );
}

/// Sends a change through the log; `done` gets the members once it is in effect here.
fn propose(node: &Arc<Node>, kind: ConfChangeType, id: u64, context: Option<ConfChangeContext>, done: Done) {
    let change = ConfChange {
        r#type: Some(kind as i32),
        node_id: Some(id),
        context: context.map(|context| context.encode().into()),
        id: None,
    };
    let own = node.clone();
    let answer = move |done: Done, outcome: crate::node::Outcome| match outcome {
        Ok(_) => {
            logging::info(
                "applied a configuration change through raft",
                &[("raft-conf-change", kind.as_str_name().into()), ("raft-conf-change-node-id", Value::Id(id))],
            );
            done.end(Ok(members(&own)));
        }
        Err(error) => {
            refused(kind.as_str_name(), id, error);
            done.end(Err(error));
        }
    };
    node.propose_conf_change(change, For::new(done, answer));
}

/// Adds a member under the given URLs, which are checked by the caller; `done` gets it and all members.
pub(crate) fn add(node: &Arc<Node>, mut peer_urls: Vec<String>, learner: bool, done: Box<dyn Waits<Added>>) {
    peer_urls.sort_unstable();
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
    // The id of an added member does not depend on the cluster token.
    let id = replica::member_id(&peer_urls, "", Some(seconds));
    let member = Member { id, peer_urls, is_learner: learner, ..Member::default() };
    let allowed = check(node, |health| rules::may_add(health, learner)).and_then(|()| may_learn(node, &member));
    if let Err(error) = allowed {
        refused("add", id, error);
        return done.end(Err(error));
    }
    let kind = if learner { ConfChangeType::ConfChangeAddLearnerNode } else { ConfChangeType::ConfChangeAddNode };
    let context = ConfChangeContext { member: member.clone(), is_promote: false };
    let answer =
        move |done: Box<dyn Waits<Added>>, changed: Changed| done.end(changed.map(|members| (member, members)));
    propose(node, kind, id, Some(context), For::new(done, answer));
}

/// The limit of learners is a flag that may differ between members, so it is checked here and not when the entry is
/// applied: otherwise members could diverge.
fn may_learn(node: &Node, member: &Member) -> Result<(), Error> {
    if !member.is_learner {
        return Ok(());
    }
    let members = members(node);
    if members.iter().any(|other| other.peer_urls.iter().any(|url| member.peer_urls.contains(url))) {
        return Err(Error::PeerUrlExist);
    }
    has_room_for_learner(node, &members)
}

fn has_room_for_learner(node: &Node, members: &[Member]) -> Result<(), Error> {
    let learners = members.iter().filter(|member| member.is_learner).count();
    if learners >= node.config.max_learners { Err(Error::TooManyLearners) } else { Ok(()) }
}

/// Removes a member for good.
pub(crate) fn remove(node: &Arc<Node>, id: u64, done: Done) {
    let active = node.active_since(id).is_some();
    if let Err(error) = check(node, |health| rules::may_remove(health, id, node.member_id, active)) {
        refused("remove", id, error);
        return done.end(Err(error));
    }
    propose(node, ConfChangeType::ConfChangeRemoveNode, id, None, done);
}

/// Gives a member other peer URLs.
pub(crate) fn update(node: &Arc<Node>, id: u64, peer_urls: Vec<String>, done: Done) {
    let member = Member { id, peer_urls, ..Member::default() };
    let context = ConfChangeContext { member, is_promote: false };
    propose(node, ConfChangeType::ConfChangeUpdateNode, id, Some(context), done);
}

/// Makes a learner a voter. Only the leader knows whether the learner is ready, and only the leader counts promotions;
/// another member forwards the request to it.
pub(crate) fn promote(node: &Arc<Node>, id: u64, client: Option<Address>, done: Done) {
    if !node.status.is_leader() {
        return forward_promotion(node, id, client, done);
    }
    let counting = node.clone();
    let done: Done = For::new(done, move |done: Done, changed: Changed| {
        match &changed {
            Ok(_) => counting.metrics.cluster.promoted(),
            Err(error) => counting.metrics.cluster.promotion_failed(*error),
        }
        done.end(changed);
    });
    let own = node.clone();
    // Everything acknowledged must be applied first: otherwise a member that was just added would not be found.
    node.linearize(Weight::NONE, move |allowed| {
        if let Err(error) = allowed {
            return done.end(Err(error));
        }
        let asked = own.clone();
        own.progress(Box::new(move |progress| {
            if progress.is_empty() {
                // Another member leads by now.
                return forward_promotion(&asked, id, client, done);
            }
            match ready(&asked, &progress, id) {
                Ok(()) => {
                    let member = Member { id, ..Member::default() };
                    let context = ConfChangeContext { member, is_promote: true };
                    propose(&asked, ConfChangeType::ConfChangeAddNode, id, Some(context), done);
                }
                Err(error) => {
                    refused("promote", id, error);
                    done.end(Err(error));
                }
            }
        }));
    });
}

fn ready(node: &Node, progress: &[replica::Progress], id: u64) -> Result<(), Error> {
    let matched = |id| progress.iter().find(|progress| progress.id == id).map(|progress| progress.matched);
    let learner = matched(id).ok_or(Error::MemberNotFound)?;
    if !rules::learner_is_ready(learner, matched(node.member_id).unwrap_or(0)) {
        return Err(Error::LearnerNotReady);
    }
    check(node, rules::may_promote)
}

fn forward_promotion(node: &Arc<Node>, id: u64, client: Option<Address>, done: Done) {
    let ask = move |node: &Arc<Node>, _: &mut Kept, done: Done| done.end(ask_leader_to_promote(node, id));
    node.forward(client, done, ask, |done, error| done.end(Err(error)));
}

fn ask_leader_to_promote(node: &Arc<Node>, id: u64) -> Changed {
    let deadline = Instant::now() + node.config.request_timeout();
    while let Some(urls) = super::leader_urls(node, deadline) {
        for url in &urls {
            match remote::promote(&node.connector, url, id, node.config.request_timeout()) {
                Ok(Promoted::Done(members)) => return Ok(members),
                Ok(Promoted::Refused(error)) => return Err(error),
                Err(error) => logging::warn(
                    "cannot forward a promotion to the leader",
                    &[("url", url.into()), ("error", Value::Shown(&error))],
                ),
            }
        }
        std::thread::sleep(RETRY);
    }
    Err(if node.stopping.load(Ordering::Relaxed) { Error::Stopped } else { Error::Timeout })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::Rig;
    use api::etcdserverpb::{MemberAddRequest, MemberAddResponse, MemberRemoveRequest, MemberRemoveResponse};

    const MEMBER_ADD: &str = "/etcdserverpb.Cluster/MemberAdd";

    fn may_be(rig: &Rig, kind: ConfChangeType, id: u64) -> Result<(), Error> {
        super::may_be(rig.node(), &ConfChange { r#type: Some(kind as i32), node_id: Some(id), ..Default::default() })
    }

    #[test]
    fn changes_are_checked_against_the_members_that_there_are() {
        let rig = Rig::start(&["--strict-reconfig-check=true"]);
        let own = rig.node().member_id;
        assert_eq!(may_be(&rig, ConfChangeType::ConfChangeRemoveNode, own), Err(Error::MemberNotEnoughStarted));
        assert_eq!(
            may_be(&rig, ConfChangeType::ConfChangeRemoveNode, own + 1),
            Ok(()),
            "the log says that it is unknown"
        );
        assert_eq!(may_be(&rig, ConfChangeType::ConfChangeAddNode, own + 1), Ok(()), "one may grow");
        assert_eq!(may_be(&rig, ConfChangeType::ConfChangeAddLearnerNode, own + 1), Ok(()));
        rig.cut_off(None);
        assert_eq!(may_be(&rig, ConfChangeType::ConfChangeAddNode, own + 1), Err(Error::MemberNotEnoughStarted));
        assert_eq!(may_be(&rig, ConfChangeType::ConfChangeAddLearnerNode, own + 1), Err(Error::Unhealthy));
    }

    #[test]
    fn a_learner_that_came_first_counts_whatever_the_rules() {
        let rig = Rig::start(&["--max-learners=1"]);
        let add = |url: &str| MemberAddRequest { peer_ur_ls: vec![url.into()], is_learner: true };
        let id = rig.node().member_id + 1;
        assert_eq!(may_be(&rig, ConfChangeType::ConfChangeAddLearnerNode, id), Ok(()));
        let _: MemberAddResponse = rig.call(MEMBER_ADD, None, &add("http://127.0.0.2:1")).expect("the first");
        assert_eq!(may_be(&rig, ConfChangeType::ConfChangeAddLearnerNode, id), Err(Error::TooManyLearners));
        assert_eq!(may_be(&rig, ConfChangeType::ConfChangeAddNode, id), Ok(()), "one with a vote");
    }

    #[test]
    fn the_only_voter_stays_whatever_the_rules() {
        let rig = Rig::start(&[]);
        let own = rig.node().member_id;
        assert_eq!(may_be(&rig, ConfChangeType::ConfChangeRemoveNode, own), Ok(()), "the rules are switched off");
        let remove = MemberRemoveRequest { id: own };
        let refused = rig.call::<MemberRemoveResponse>("/etcdserverpb.Cluster/MemberRemove", None, &remove);
        let refused = refused.expect_err("nobody would be left");
        assert_eq!(refused.message, Error::MemberNotEnoughStarted.message());
        assert_eq!(members(rig.node()).len(), 1);
    }
}
