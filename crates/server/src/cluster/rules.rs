//! The rules of configuration changes: checks that keep a careless change from costing the quorum.

use api::Error;
use store::Member;

/// The facts that the checks use.
pub(crate) struct Health<'a> {
    /// All members, learners included.
    pub(crate) members: &'a [Member],
    /// Whether this member has been connected to the given member for long enough. Always true for this member itself.
    pub(crate) connected: &'a dyn Fn(u64) -> bool,
}

impl Health<'_> {
    fn voters(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| !member.is_learner)
    }

    fn connected_voters(&self) -> usize {
        self.voters().filter(|member| (self.connected)(member.id)).count()
    }
}

/// The number of members that have started, and of all. A member that never ran has published no name.
fn started<'a>(members: impl Iterator<Item = &'a Member>) -> (usize, usize) {
    members.fold((0, 0), |(started, all), member| (started + usize::from(!member.name.is_empty()), all + 1))
}

fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

/// May a member be added? The new one counts as down until it has started.
pub(crate) fn may_add(health: &Health<'_>, learner: bool) -> Result<(), Error> {
    let (started, voters) = started(health.voters());
    // A single member may always grow: that is how a cluster is rebuilt from one copy.
    let first_growth = started == 1 && voters == 1;
    if !learner && !first_growth && started < quorum(voters + 1) {
        return Err(Error::MemberNotEnoughStarted);
    }
    if voters != 1 && health.connected_voters() < quorum(voters + 1) {
        return Err(Error::Unhealthy);
    }
    Ok(())
}

/// May the member `id` be removed? `active` says whether there is a connection to it at all.
pub(crate) fn may_remove(health: &Health<'_>, id: u64, own_id: u64, active: bool) -> Result<(), Error> {
    if health.members.iter().any(|member| member.id == id && member.is_learner) {
        return Ok(());
    }
    let (started, voters) = started(health.voters().filter(|member| member.id != id));
    if started < quorum(voters) {
        return Err(Error::MemberNotEnoughStarted);
    }
    // A member that is down is not part of the working quorum.
    if id != own_id && !active {
        return Ok(());
    }
    let all = health.voters().count();
    if health.connected_voters().saturating_sub(1) < quorum(all.saturating_sub(1)) {
        return Err(Error::Unhealthy);
    }
    Ok(())
}

/// May a learner become a voter? The learner counts as started, because it has followed the log.
pub(crate) fn may_promote(health: &Health<'_>) -> Result<(), Error> {
    let (started, voters) = started(health.voters());
    if started + 1 < quorum(voters + 1) { Err(Error::MemberNotEnoughStarted) } else { Ok(()) }
}

/// A learner is ready to vote once it holds nine tenths of the leader's log.
pub(crate) fn learner_is_ready(matched: u64, leader_last: u64) -> bool {
    u128::from(matched) * 10 >= u128::from(leader_last) * 9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(started: &[bool], learners: usize) -> Vec<Member> {
        let voters = started.iter().map(|started| (*started, false));
        let all = voters.chain(std::iter::repeat_n((true, true), learners));
        (1..)
            .zip(all)
            .map(|(id, (started, is_learner))| Member {
                id,
                is_learner,
                name: if started { "n".into() } else { String::new() },
                ..Member::default()
            })
            .collect()
    }

    fn add(started: &[bool], up: &[u64], learner: bool) -> Result<(), Error> {
        let members = members(started, 0);
        may_add(&Health { members: &members, connected: &|id| up.contains(&id) }, learner)
    }

    fn remove(started: &[bool], up: &[u64], id: u64) -> Result<(), Error> {
        let members = members(started, 1);
        let health = Health { members: &members, connected: &|id| up.contains(&id) };
        may_remove(&health, id, 1, up.contains(&id))
    }

    #[test]
    fn adding() {
        assert_eq!(add(&[true], &[1], false), Ok(()), "one to two");
        assert_eq!(add(&[true, false], &[1], false), Err(Error::MemberNotEnoughStarted));
        assert_eq!(add(&[true, false], &[1], true), Err(Error::Unhealthy));
        assert_eq!(add(&[true, true, true], &[1, 2, 3], false), Ok(()));
        assert_eq!(add(&[true, true, true], &[1, 2], false), Err(Error::Unhealthy), "four need three");
        assert_eq!(add(&[true, true, true], &[1, 2, 3], true), Ok(()));
        assert_eq!(add(&[true, true, false], &[1, 2, 3], false), Err(Error::MemberNotEnoughStarted));
    }

    #[test]
    fn removing() {
        assert_eq!(remove(&[true, true, true], &[1, 2, 3], 3), Ok(()));
        assert_eq!(remove(&[true, true, true], &[1, 2], 3), Ok(()), "it is down");
        assert_eq!(remove(&[true, true, true], &[1, 2], 2), Err(Error::Unhealthy), "two of which one is down");
        assert_eq!(remove(&[true, true, true], &[1, 2], 1), Err(Error::Unhealthy));
        assert_eq!(remove(&[true, false], &[1], 2), Ok(()));
        assert_eq!(remove(&[true, false], &[1], 1), Err(Error::MemberNotEnoughStarted));
        assert_eq!(remove(&[true], &[1], 1), Err(Error::MemberNotEnoughStarted));
        assert_eq!(remove(&[true, false], &[1], 3), Ok(()), "a learner");
    }

    #[test]
    fn promoting() {
        let promote = |started: &[bool]| {
            let members = members(started, 1);
            may_promote(&Health { members: &members, connected: &|_| true })
        };
        assert_eq!(promote(&[true]), Ok(()));
        assert_eq!(promote(&[true, false, false]), Err(Error::MemberNotEnoughStarted));
        assert!(learner_is_ready(90, 100) && !learner_is_ready(89, 100) && learner_is_ready(0, 0));
    }
}
