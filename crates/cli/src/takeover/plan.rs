//! What comes next: decided by what the cluster looks like, so that a move goes on wherever it was interrupted.

use super::settings::{Goal, Joiner, Way};
use super::view::{Seen, View};

/// Of fewer voters none is removed before its successor is there: two tolerate no failure, and one is all there is.
const EMPTY_DISK_VOTERS_MIN: usize = 3;

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// All members are moved.
    Nothing,
    /// Restart this member as the other program.
    Restart(u64),
    /// Take this member out.
    Remove(u64),
    /// Let this one in, as a learner.
    Add(Joiner),
    /// Bring this learner level, and give it a vote.
    Promote(u64),
}

/// The next step from `view` to `goal`, or why there is none. `moved` are the members that were moved before, as far as it is known.
pub(super) fn next(view: &View, goal: &Goal, moved: &[u64]) -> Result<Next, String> {
    let silent: Vec<String> = view.silent().map(Seen::to_string).collect();
    if silent.len() > 1 {
        return Err(format!("{} do not answer; only one may be away", silent.join(" and ")));
    }
    let next = match learner(view, goal)? {
        Some(next) => next,
        None => voter(view, goal)?,
    };
    // Its data has been written since, so what was moved is not moved again from what it had before.
    if let Next::Restart(id) | Next::Remove(id) = next
        && moved.contains(&id)
    {
        let member = view.member(id).map_or(format!("{id:x}"), Seen::to_string);
        return Err(format!("{member} was moved just now and does not answer as {}: it must be back first", goal.to));
    }
    // While one is away, no other is touched.
    match view.silent().next() {
        Some(silent) if next != Next::Restart(silent.id) && next != Next::Remove(silent.id) => {
            Err(format!("{silent} does not answer: it must be back first"))
        }
        _ => Ok(next),
    }
}

/// The next step if there is no learner.
fn voter(view: &View, goal: &Goal) -> Result<Next, String> {
    let rest = remaining(view, goal);
    match goal.way {
        Way::InPlace => Ok(rest.first().map_or(Next::Nothing, |member| Next::Restart(member.id))),
        Way::EmptyDisk => {
            // One that was removed comes back before the next one goes.
            let is_missing = |joiner: &&Joiner| !view.members.iter().any(|member| member.is(joiner));
            if let Some(missing) = goal.joining.iter().find(is_missing) {
                return Ok(Next::Add(missing.clone()));
            }
            let count = view.voters().count();
            match rest.first() {
                None => Ok(Next::Nothing),
                Some(first) if count < EMPTY_DISK_VOTERS_MIN => Err(format!(
                    "{count} members have a vote: {first} cannot be removed; take --way=in-place or new-addresses"
                )),
                Some(first) => Ok(Next::Remove(first.id)),
            }
        }
        Way::NewAddresses => {
            let joined = view.voters().filter(|member| goal.joining.iter().any(|joiner| member.is(joiner))).count();
            let (old, wanted) = (rest.len(), goal.joining.len());
            let missing = goal.joining.iter().find(|joiner| !view.members.iter().any(|member| member.is(joiner)));
            match (rest.first(), missing) {
                (None, None) => Ok(Next::Nothing),
                (Some(first), _) if joined > 0 && old + joined == wanted + 1 => Ok(Next::Remove(first.id)),
                (Some(_), Some(missing)) if old + joined == wanted => Ok(Next::Add(missing.clone())),
                _ => Err(format!(
                    "--new-members must name one new member for each one that is replaced: {wanted} named, {joined} of \
                     them in the cluster, {old} to be replaced"
                )),
            }
        }
    }
}

/// A learner goes first; there may be none but ours.
fn learner(view: &View, goal: &Goal) -> Result<Option<Next>, String> {
    let Some(learner) = view.learners().next() else { return Ok(None) };
    if goal.way == Way::InPlace {
        return Err(format!("{learner} is a learner: promote or remove it first"));
    }
    if !goal.joining.iter().any(|joiner| learner.is(joiner)) {
        let urls = learner.peer_urls.join(",");
        return Err(format!(
            "{learner} ({urls}) is a learner that --new-members does not name: if it is one of an interrupted move, name it \
             (NAME={urls}); otherwise promote or remove it first"
        ));
    }
    match learner.kind() {
        Some(kind) if kind != goal.to => Err(format!("the learner {learner} runs {kind}, not {}", goal.to)),
        _ => Ok(Some(Next::Promote(learner.id))),
    }
}

/// The members that are still to be moved: one that is away first, the leader last.
pub(super) fn remaining<'a>(view: &'a View, goal: &Goal) -> Vec<&'a Seen> {
    let leader = view.leader().map(|leader| leader.id);
    let is_ours = |member: &&Seen| {
        let is_new = goal.joining.iter().any(|joiner| member.is(joiner));
        member.kind() != Some(goal.to) && !(is_new && goal.way == Way::NewAddresses)
    };
    let mut rest: Vec<&Seen> = view.voters().filter(is_ours).collect();
    rest.sort_by_key(|member| (member.told.is_ok(), Some(member.id) == leader, member.name.clone(), member.id));
    rest
}

/// Why the cluster cannot do without this member now: the others must all answer, and have the leader among them.
pub(super) fn hindrance(view: &View, leaving: u64) -> Option<String> {
    let others = View { members: view.members.iter().filter(|member| member.id != leaving).cloned().collect() };
    if let Some(silent) = others.silent().next() {
        return Some(format!("{silent} does not answer"));
    }
    let is_led = others.voters().next().is_none() || others.leader().is_some();
    (!is_led).then(|| "the other members do not have the leader among them".into())
}

/// To whom the leader hands over before it goes: a member of the new kind if there is one.
pub(super) fn successor<'a>(view: &'a View, goal: &Goal, leader: u64) -> Option<&'a Seen> {
    let others = view.voters().filter(|member| member.id != leader);
    let told = others.filter_map(|member| Some((member, member.told.as_ref().ok()?)));
    told.max_by_key(|(_, told)| (told.kind == goal.to, told.status.raft_applied_index)).map(|(member, _)| member)
}

/// The whole plan, for people.
pub(super) fn shown(view: &View, goal: &Goal) -> Vec<String> {
    let leader = view.leader().map(|leader| leader.id);
    let missing = || goal.joining.iter().filter(|joiner| !view.members.iter().any(|member| member.is(joiner)));
    let mut lines: Vec<String> =
        view.learners().map(|learner| format!("{learner}: bring it level, promote it")).collect();
    if goal.way == Way::EmptyDisk {
        lines.extend(
            missing().map(|joiner| format!("{}: add it as a learner, bring it level, promote it", joiner.name)),
        );
    }
    let mut new = missing();
    let mut rest = remaining(view, goal);
    if goal.way == Way::NewAddresses && rest.len() > missing().count() + view.learners().count() {
        // Its successor is there already.
        let first = rest.remove(0);
        lines.push(format!("remove {first}"));
    }
    for member in rest {
        let away = if member.told.is_err() { " (does not answer: it comes first)" } else { "" };
        let leads = if Some(member.id) == leader { "hand leadership over, " } else { "" };
        let program = goal.to;
        lines.push(match goal.way {
            Way::InPlace => format!("{member}{away}: {leads}stop {}, start {program} on its data", program.other()),
            Way::EmptyDisk => {
                format!("{member}{away}: {leads}remove it, add it again as a learner, start {program}, promote it")
            }
            Way::NewAddresses => {
                let name = new.next().map_or("the new member", |joiner| joiner.name.as_str());
                format!("{name} for {member}{away}: add it as a learner, start {program}, promote it; {leads}remove {member}")
            }
        });
    }
    lines.iter().enumerate().map(|(place, line)| format!("{}. {line}", place + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::view::Kind;
    use super::super::view::samples::{learner, member, view};
    use super::*;

    const ETCD: Option<Kind> = Some(Kind::Etcd);
    const CAIRN: Option<Kind> = Some(Kind::Cairn);

    fn goal(way: Way, joining: &[u64]) -> Goal {
        let joiner = |id: &u64| Joiner {
            name: format!("n{id}"),
            peer_urls: vec![format!("http://10.0.0.{id}:2380")],
            client_urls: Vec::new(),
        };
        Goal { to: Kind::Cairn, way, joining: joining.iter().map(joiner).collect() }
    }

    #[test]
    fn the_leader_is_last_and_who_is_away_first() {
        let in_place = goal(Way::InPlace, &[]);
        let order =
            |members: &[Seen]| remaining(&view(members), &in_place).iter().map(|member| member.id).collect::<Vec<_>>();
        assert_eq!(order(&[member(1, "c", ETCD, 1), member(2, "b", ETCD, 1), member(3, "a", ETCD, 1)]), [3, 2, 1]);
        assert_eq!(order(&[member(1, "a", ETCD, 1), member(2, "b", CAIRN, 1), member(3, "c", None, 1)]), [3, 1]);
        assert_eq!(order(&[member(1, "a", CAIRN, 1), member(2, "b", CAIRN, 1)]), [] as [u64; 0]);
    }

    #[test]
    fn in_place_each_member_is_restarted() {
        let in_place = goal(Way::InPlace, &[]);
        let cases = [
            (vec![member(1, "a", ETCD, 1), member(2, "b", ETCD, 1)], Ok(Next::Restart(2))),
            (vec![member(1, "a", ETCD, 1), member(2, "b", CAIRN, 1)], Ok(Next::Restart(1))),
            // Interrupted between stop and start.
            (vec![member(1, "a", ETCD, 1), member(2, "b", CAIRN, 1), member(3, "c", None, 1)], Ok(Next::Restart(3))),
            (vec![member(1, "a", CAIRN, 1), member(2, "b", CAIRN, 1)], Ok(Next::Nothing)),
        ];
        for (members, wanted) in cases {
            assert_eq!(next(&view(&members), &in_place, &[]), wanted);
        }
        let two_away = [member(1, "a", None, 3), member(2, "b", None, 3), member(3, "c", ETCD, 3)];
        assert_eq!(
            next(&view(&two_away), &in_place, &[]).expect_err("refused"),
            "a and b do not answer; only one may be away"
        );
        let with_learner = [member(1, "a", ETCD, 1), learner(2, "b", ETCD, 1)];
        assert!(next(&view(&with_learner), &in_place, &[]).expect_err("refused").contains("b is a learner"));
    }

    #[test]
    fn with_new_addresses_one_joins_before_one_goes() {
        let goal = goal(Way::NewAddresses, &[11, 12]);
        let (a, b) = (member(1, "a", ETCD, 1), member(2, "b", ETCD, 1));
        let (c, d) = (member(11, "n11", CAIRN, 1), member(12, "n12", CAIRN, 1));
        let step =
            |members: &[&Seen]| next(&view(&members.iter().map(|one| (*one).clone()).collect::<Vec<_>>()), &goal, &[]);
        assert_eq!(step(&[&a, &b]), Ok(Next::Add(goal.joining[0].clone())));
        assert_eq!(step(&[&a, &b, &learner(11, "", None, 1)]), Ok(Next::Promote(11)));
        assert_eq!(step(&[&a, &b, &learner(11, "n11", CAIRN, 1)]), Ok(Next::Promote(11)));
        assert_eq!(step(&[&a, &b, &c]), Ok(Next::Remove(2)));
        assert_eq!(step(&[&a, &c]), Ok(Next::Add(goal.joining[1].clone())));
        assert_eq!(step(&[&a, &c, &d]), Ok(Next::Remove(1)));
        let (c, d) = (member(11, "n11", CAIRN, 11), member(12, "n12", CAIRN, 11));
        assert_eq!(step(&[&c, &d]), Ok(Next::Nothing));
        let away = member(11, "n11", None, 1);
        assert_eq!(step(&[&a, &b, &away]), Err("n11 does not answer: it must be back first".into()));
        assert_eq!(step(&[&a, &member(2, "b", None, 1), &c]), Ok(Next::Remove(2)));
        assert_eq!(step(&[&a, &member(2, "b", None, 1)]), Err("b does not answer: it must be back first".into()));
        assert!(step(&[&a]).expect_err("refused").contains("2 named, 0 of them in the cluster, 1 to be replaced"));
        assert!(step(&[&a, &b, &learner(3, "x", CAIRN, 1)]).expect_err("refused").contains("does not name"));
        let wrong = step(&[&a, &b, &learner(11, "n11", ETCD, 1)]).expect_err("refused");
        assert_eq!(wrong, "the learner n11 runs etcd, not Cairn");
    }

    #[test]
    fn with_empty_disks_one_is_missing_at_a_time() {
        let (a, b, c) = (member(1, "a", ETCD, 1), member(2, "b", ETCD, 1), member(3, "c", ETCD, 1));
        let step = |members: &[&Seen], joining: &[u64]| {
            let members: Vec<Seen> = members.iter().map(|one| (*one).clone()).collect();
            next(&view(&members), &goal(Way::EmptyDisk, joining), &[])
        };
        assert_eq!(step(&[&a, &b, &c], &[]), Ok(Next::Remove(2)));
        assert_eq!(step(&[&a, &c], &[2]), Ok(Next::Add(goal(Way::EmptyDisk, &[2]).joining[0].clone())));
        assert_eq!(step(&[&a, &learner(2, "", None, 1), &c], &[2]), Ok(Next::Promote(2)));
        assert_eq!(step(&[&a, &member(2, "b", CAIRN, 1), &c], &[2]), Ok(Next::Remove(3)));
        assert!(step(&[&a, &learner(2, "", None, 1), &c], &[]).is_err());
        // Whatever is named as the one that is missing: of two none goes.
        let why = "2 members have a vote: b cannot be removed; take --way=in-place or new-addresses";
        assert_eq!(step(&[&a, &b], &[]), Err(why.into()));
        assert_eq!(step(&[&a, &b], &[1]), Err(why.into()));
        assert!(step(&[&a], &[1]).is_err());
        assert_eq!(step(&[&member(1, "a", CAIRN, 1)], &[]), Ok(Next::Nothing));
    }

    #[test]
    fn who_was_moved_is_not_moved_again() {
        let (in_place, empty) = (goal(Way::InPlace, &[]), goal(Way::EmptyDisk, &[]));
        for kind in [None, ETCD] {
            let view = view(&[member(1, "a", ETCD, 1), member(2, "b", kind, 1), member(3, "c", ETCD, 1)]);
            assert_eq!(next(&view, &in_place, &[]), Ok(Next::Restart(2)));
            for goal in [&in_place, &empty] {
                let why = next(&view, goal, &[2]).expect_err("refused");
                assert_eq!(why, "b was moved just now and does not answer as Cairn: it must be back first");
            }
        }
    }

    #[test]
    fn none_leaves_unless_the_others_can_do_without_it() {
        let (a, b, c) = (member(1, "a", ETCD, 1), member(2, "b", ETCD, 1), member(3, "c", ETCD, 1));
        let away = |id, name| member(id, name, None, 1);
        let why = |members: &[Seen], leaving| hindrance(&view(members), leaving);
        assert_eq!(why(&[a.clone(), b.clone(), c.clone()], 2), None);
        assert_eq!(why(&[a.clone(), away(2, "b"), c.clone()], 2), None);
        assert_eq!(why(&[a.clone(), b.clone(), away(3, "c")], 2).as_deref(), Some("c does not answer"));
        let leads = "the other members do not have the leader among them";
        assert_eq!(why(&[a.clone(), b.clone(), c.clone()], 1).as_deref(), Some(leads));
        assert_eq!(why(&[a.clone(), b, member(3, "c", ETCD, 0)], 2).as_deref(), Some(leads));
        assert_eq!(why(&[a.clone(), away(2, "b")], 1).as_deref(), Some("b does not answer"));
        // Alone it has nobody to lead.
        assert_eq!(why(std::slice::from_ref(&a), 1), None);
        // A learner has no part in it.
        assert_eq!(why(&[a, c, learner(4, "", None, 1)], 3), None);
    }

    #[test]
    fn leadership_goes_to_the_new_kind() {
        let view = view(&[member(1, "a", ETCD, 1), member(2, "b", ETCD, 1), member(3, "c", CAIRN, 1)]);
        assert_eq!(successor(&view, &goal(Way::InPlace, &[]), 1).map(|member| member.id), Some(3));
        let alone = super::super::view::samples::view(&[member(1, "a", ETCD, 1)]);
        assert!(successor(&alone, &goal(Way::InPlace, &[]), 1).is_none());
    }

    #[test]
    fn plans_name_each_step() {
        let members = [member(1, "a", ETCD, 1), member(2, "b", ETCD, 1)];
        assert_eq!(
            shown(&view(&members), &goal(Way::InPlace, &[])),
            [
                "1. b: stop etcd, start Cairn on its data",
                "2. a: hand leadership over, stop etcd, start Cairn on its data"
            ]
        );
        let lines = shown(&view(&members), &goal(Way::NewAddresses, &[11, 12]));
        assert_eq!(lines[0], "1. n11 for b: add it as a learner, start Cairn, promote it; remove b");
        let joined = [members[0].clone(), members[1].clone(), member(11, "n11", CAIRN, 1)];
        let lines = shown(&view(&joined), &goal(Way::NewAddresses, &[11, 12]));
        assert_eq!(lines[0], "1. remove b");
        assert!(lines[1].starts_with("2. n12 for a: "), "{lines:?}");
        let lines = shown(&view(&members), &goal(Way::EmptyDisk, &[]));
        assert_eq!(lines[0], "1. b: remove it, add it again as a learner, start Cairn, promote it");
    }
}
