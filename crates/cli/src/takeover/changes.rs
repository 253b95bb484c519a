//! Changes of the cluster through its API, repeated until they are done: what the cluster has decides, not the answer.

use super::screen::{Look, Screen};
use super::settings::Joiner;
use super::survey::Cluster;
use super::view::Seen;
use crate::failure::{Failure, Outcome, code};
use api::Code;
use api::etcdserverpb::*;
use client::Error;

/// Whether it may go better the next time: no leader for the moment, members that have not been connected for long enough.
fn is_passing(error: &Error) -> bool {
    let texts = [
        api::Error::MemberNotEnoughStarted,
        api::Error::LearnerNotReady,
        api::Error::TimeoutLeaderTransfer,
        api::Error::TooManyRequests,
        api::Error::NotSupportedForLearner,
        api::Error::NotLeader,
    ];
    let codes = [Code::Unavailable, Code::DeadlineExceeded, Code::Aborted, Code::Canceled];
    error.code().is_some_and(|code| codes.contains(&code)) || texts.iter().any(|text| error.is(*text))
}

/// What a failed attempt means.
fn judge<T>(error: Error) -> Outcome<Look<T>> {
    if is_passing(&error) { Ok(Look::NotYet(Failure::from(error).text)) } else { Err(error.into()) }
}

/// The list, if it can be had.
async fn listed(cluster: &Cluster<'_>) -> Result<Vec<Member>, String> {
    cluster.list().await.map(|listed| listed.members).map_err(|failure| failure.text)
}

/// Lets `joiner` in as a learner.
pub(super) async fn add(cluster: &Cluster<'_>, screen: &Screen, joiner: &Joiner) -> Outcome<u64> {
    let look = async || {
        let members = match listed(cluster).await {
            Ok(members) => members,
            Err(why) => return Ok(Look::NotYet(why)),
        };
        let has_url = |member: &&Member| member.peer_ur_ls.iter().any(|url| joiner.peer_urls.contains(url));
        if let Some(member) = members.iter().find(has_url) {
            return Ok(Look::There(member.id));
        }
        let request = MemberAddRequest { peer_ur_ls: joiner.peer_urls.clone(), is_learner: true };
        match cluster.client().member_add(request).await {
            // The next look finds it in the list.
            Ok(_) => Ok(Look::NotYet("just added".into())),
            Err(error) if error.is(api::Error::PeerUrlExist) => Ok(Look::NotYet(Failure::from(error).text)),
            Err(error) => judge(error),
        }
    };
    screen.until(&format!("{} is added as a learner", joiner.name), look).await
}

/// Gives a learner its vote.
pub(super) async fn promote(cluster: &Cluster<'_>, screen: &Screen, member: &Seen) -> Outcome {
    let look = async || {
        let members = match listed(cluster).await {
            Ok(members) => members,
            Err(why) => return Ok(Look::NotYet(why)),
        };
        match members.iter().find(|one| one.id == member.id) {
            None => return Err(Failure::new(code::ERROR, format!("{member} has been removed meanwhile"))),
            Some(found) if !found.is_learner => return Ok(Look::There(())),
            Some(_) => {}
        }
        match cluster.client().member_promote(MemberPromoteRequest { id: member.id }).await {
            Ok(_) => Ok(Look::There(())),
            Err(error) => judge(error),
        }
    };
    screen.until(&format!("{member} is promoted"), look).await
}

/// Takes a member out.
pub(super) async fn remove(cluster: &Cluster<'_>, screen: &Screen, member: &Seen) -> Outcome {
    let look = async || {
        match listed(cluster).await {
            Ok(members) if !members.iter().any(|one| one.id == member.id) => return Ok(Look::There(())),
            Ok(_) => {}
            Err(why) => return Ok(Look::NotYet(why)),
        }
        match cluster.client().member_remove(MemberRemoveRequest { id: member.id }).await {
            Ok(_) => Ok(Look::There(())),
            Err(error) if error.is(api::Error::MemberNotFound) => Ok(Look::There(())),
            Err(error) => judge(error),
        }
    };
    screen.until(&format!("{member} is removed"), look).await
}

/// Hands leadership over, whoever leads by now.
pub(super) async fn lead(cluster: &Cluster<'_>, screen: &Screen, to: &Seen) -> Outcome {
    let look = async || {
        let view = match cluster.view().await {
            Ok(view) => view,
            Err(failure) if failure.code == code::INVALID_INPUT => return Err(failure),
            Err(failure) => return Ok(Look::NotYet(failure.text)),
        };
        let Some(leader) = view.leader() else { return Ok(Look::NotYet("no leader".into())) };
        if leader.id == to.id {
            return Ok(Look::There(()));
        }
        let Ok(told) = &leader.told else { return Ok(Look::NotYet(format!("{leader} does not answer"))) };
        // Only the leader can hand leadership over.
        let client = cluster.client_of(&told.endpoint)?;
        match client.move_leader(MoveLeaderRequest { target_id: to.id }).await {
            Ok(_) => Ok(Look::NotYet(format!("{leader} hands over"))),
            Err(error) => judge(error),
        }
    };
    screen.until(&format!("{to} leads"), look).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_waited_for() {
        let of = |error: api::Error| Error::Status(error.into());
        for error in [api::Error::Unhealthy, api::Error::LearnerNotReady, api::Error::NoLeader, api::Error::Timeout] {
            assert!(is_passing(&of(error)), "{error:?}");
        }
        for error in [api::Error::PermissionDenied, api::Error::TooManyLearners, api::Error::MemberBadUrls] {
            assert!(!is_passing(&of(error)), "{error:?}");
        }
    }
}
