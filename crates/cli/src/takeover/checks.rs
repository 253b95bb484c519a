//! The checks before each step.

use super::settings::{Goal, Way};
use super::view::{Kind, Seen, Told, View, plain};
use crate::checks::format::{Grade, bytes};

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) grade: Grade,
    pub(super) name: &'static str,
    pub(super) text: String,
}

/// Of its quota, what a member may have taken without a warning.
const QUOTA_SHARE_MAX: f64 = 0.8;
/// The quota that 0 means.
const QUOTA_DEFAULT: i64 = 2 << 30;
/// The releases of etcd beside which Cairn works.
const CURRENT: (u64, u64) = (3, 7);
const EARLIER: (u64, u64) = (3, 6);

/// What is found out from what the members say of themselves. `alarms` are those that the cluster has.
pub(super) fn findings(view: &View, goal: &Goal, alarms: &[String]) -> Vec<Finding> {
    let mut findings = vec![members(view)];
    findings.push(leader(view));
    findings.extend(size(view, goal));
    findings.extend(versions(view, goal));
    findings.push(raised(view, alarms));
    findings.extend(view.members.iter().filter_map(|member| Some(space(member, member.told.as_ref().ok()?))));
    findings.extend(names(view, goal));
    findings
}

fn found(grade: Grade, name: &'static str, text: impl Into<String>) -> Finding {
    Finding { grade, name, text: text.into() }
}

fn members(view: &View) -> Finding {
    let (voters, silent) = (view.voters().count(), view.silent().count());
    let say = |member: &Seen| match &member.told {
        Ok(told) => format!("{member} {} {}", told.kind, plain(&told.status.version)),
        Err(why) => format!("{member} does not answer ({})", plain(why)),
    };
    let text = view.voters().map(say).collect::<Vec<_>>().join(", ");
    match silent {
        0 => found(Grade::Pass, "members", text),
        // The one whose move was interrupted, or that has to be brought back before another one is touched.
        1 if voters > 2 => found(Grade::Warn, "members", format!("{text}: it comes first")),
        _ => found(Grade::Fail, "members", text),
    }
}

fn leader(view: &View) -> Finding {
    match view.leader() {
        Some(leader) => found(Grade::Pass, "leader", leader.to_string()),
        None => found(Grade::Fail, "leader", "the members do not agree on one that answers"),
    }
}

fn size(view: &View, goal: &Goal) -> Option<Finding> {
    match (goal.way, view.voters().count()) {
        (_, 0) => Some(found(Grade::Fail, "size", "no member has a vote")),
        (Way::EmptyDisk, count @ 1..=2) if goal.joining.is_empty() => {
            let text = format!("{count} members: none can be removed; take --way=in-place or new-addresses");
            Some(found(Grade::Fail, "size", text))
        }
        (Way::InPlace, count @ 1..=2) => {
            let text = format!(
                "{count} members: the cluster stands still during each restart; if this is interrupted between stop and start, \
                 start the stopped member by hand"
            );
            Some(found(Grade::Warn, "size", text))
        }
        _ => None,
    }
}

fn versions(view: &View, goal: &Goal) -> Vec<Finding> {
    let mut findings = Vec::new();
    let told = || view.members.iter().filter_map(|member| Some((member, member.told.as_ref().ok()?)));
    for (member, told) in told().filter(|(_, told)| told.kind == Kind::Etcd) {
        let version = plain(&told.status.version);
        match minor(&told.status.version) {
            Some(EARLIER) if goal.to == Kind::Cairn => {
                let text = format!(
                    "{member} is etcd {version}: the cluster's version becomes 3.7 once all members are moved; a way back to 3.6 \
                     begins with `etcdctl downgrade enable 3.6` then"
                );
                findings.push(found(Grade::Warn, "version", text));
            }
            Some(CURRENT | EARLIER) => {}
            _ => {
                let text = format!("{member} is etcd {version}: bring it to 3.7 first");
                findings.push(found(Grade::Fail, "version", text));
            }
        }
    }
    findings.extend(told().find_map(|(member, told)| downgrade(member, told, goal)));
    let mut shared: Vec<&String> = told().filter_map(|(_, told)| told.cluster_version.as_ref()).collect();
    shared.dedup();
    match shared[..] {
        [one] => findings.push(found(Grade::Pass, "version", format!("the cluster's is {}", plain(one)))),
        [] => findings.push(found(Grade::Info, "version", "no member shows the cluster's")),
        _ => findings.push(found(Grade::Fail, "version", "the members show different ones for the cluster")),
    }
    findings
}

/// A downgrade that is under way, as a member sees it. It is part of a way back to the release before, as soon as the cluster's version
/// has been lowered: no member can start as that release earlier. One that is new to the cluster cannot start at all until the downgrade
/// ends: etcd 3.6 wants the cluster to have the version after its own then.
fn downgrade(member: &Seen, told: &Told, goal: &Goal) -> Option<Finding> {
    let info = told.status.downgrade_info.as_ref().filter(|info| info.enabled)?;
    let target = plain(&info.target_version);
    let is_lowered = told.cluster_version.as_deref().and_then(minor).is_some_and(|own| Some(own) == minor(&target));
    let (grade, text) = match goal.way {
        Way::InPlace if goal.to == Kind::Etcd && is_lowered => {
            (Grade::Warn, "the members that are started have to be of that release".to_string())
        }
        Way::EmptyDisk | Way::NewAddresses if goal.to == Kind::Etcd => {
            let way = "move a member with --way=in-place, then `etcdctl downgrade cancel`";
            (Grade::Fail, format!("no new member of that release can join meanwhile; {way}"))
        }
        _ => (Grade::Fail, format!("{member} says so")),
    };
    Some(found(grade, "version", format!("a downgrade to {target} is under way: {text}")))
}

/// The first two numbers of a version.
fn minor(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn raised(view: &View, alarms: &[String]) -> Finding {
    let errors = view.members.iter().filter_map(|member| Some((member, member.told.as_ref().ok()?)));
    let errors =
        errors.flat_map(|(member, told)| told.status.errors.iter().map(move |error| format!("{member}: {error}")));
    let all: Vec<String> = alarms.iter().cloned().chain(errors).map(|text| plain(&text)).collect();
    if all.is_empty() { found(Grade::Pass, "alarms", "none") } else { found(Grade::Fail, "alarms", all.join(", ")) }
}

fn space(member: &Seen, told: &Told) -> Finding {
    let quota = Some(told.status.db_size_quota).filter(|quota| *quota > 0).unwrap_or(QUOTA_DEFAULT);
    let (used, quota) = (told.status.db_size.max(0).unsigned_abs(), quota.unsigned_abs());
    let share = used as f64 / quota as f64;
    let text = format!(
        "{member} has {} of {} ({:.0} %); its move takes as much of its disk again",
        bytes(used),
        bytes(quota),
        share * 100.0
    );
    let grade = match share {
        ..=QUOTA_SHARE_MAX => Grade::Pass,
        ..1.0 => Grade::Warn,
        _ => Grade::Fail,
    };
    found(grade, "space", text)
}

/// Names that `--initial-cluster` cannot hold, that the operator's commands might take for an option, or that mean two members.
fn names(view: &View, goal: &Goal) -> Option<Finding> {
    let named = view.members.iter().map(|member| member.name.as_str()).filter(|name| !name.is_empty());
    // Those of the list that are in the cluster are members already.
    let new = goal.joining.iter().filter(|joiner| !view.members.iter().any(|member| member.is(joiner)));
    let mut all: Vec<&str> = named.chain(new.map(|joiner| joiner.name.as_str())).collect();
    all.sort_unstable();
    let wrong = |name: &str| {
        let why = match name {
            _ if name.contains(char::is_control) => "a name with control characters is no name for a command",
            _ if name.starts_with('-') => "a name that begins with `-` looks like an option to a command",
            _ if name.contains([',', '=']) => "no name with a comma or `=` can stand in --initial-cluster",
            _ => return None,
        };
        Some(format!("{}: {why}", plain(name)))
    };
    let twice = || {
        let two = all.windows(2).find(|two| two[0] == two[1])?;
        Some(format!("two members are called {}: each needs a name of its own", plain(two[0])))
    };
    let text = all.iter().find_map(|name| wrong(name)).or_else(twice)?;
    Some(found(Grade::Fail, "names", text))
}

#[cfg(test)]
mod tests {
    use super::super::settings::Joiner;
    use super::super::view::samples::{learner, member, view};
    use super::*;

    const ETCD: Option<Kind> = Some(Kind::Etcd);

    fn worst(members: &[Seen], way: Way, alarms: &[String]) -> Vec<&'static str> {
        let goal = Goal { to: Kind::Cairn, way, joining: Vec::new() };
        let all = findings(&view(members), &goal, alarms);
        all.iter().filter(|finding| finding.grade == Grade::Fail).map(|finding| finding.name).collect()
    }

    fn three() -> Vec<Seen> {
        vec![member(1, "a", ETCD, 1), member(2, "b", ETCD, 1), member(3, "c", ETCD, 1)]
    }

    fn with(change: impl Fn(&mut Told)) -> Vec<Seen> {
        let mut members = three();
        if let Ok(told) = &mut members[1].told {
            change(told);
        }
        members
    }

    #[test]
    fn a_sound_cluster_passes() {
        assert_eq!(worst(&three(), Way::InPlace, &[]), [] as [&str; 0]);
        assert_eq!(worst(&three(), Way::EmptyDisk, &[]), [] as [&str; 0]);
    }

    #[test]
    fn each_fault_is_found() {
        let in_place = |members: &[Seen]| worst(members, Way::InPlace, &[]);
        assert_eq!(worst(&three(), Way::InPlace, &["a: NOSPACE".into()]), ["alarms"]);
        assert_eq!(in_place(&with(|told| told.status.errors.push("CORRUPT".into()))), ["alarms"]);
        assert_eq!(in_place(&with(|told| told.status.version = "3.5.9".into())), ["version"]);
        assert_eq!(in_place(&with(|told| told.status.version = "\x1b[2J".into())), ["version"]);
        assert_eq!(in_place(&with(|told| told.status.db_size = 3 << 30)), ["space"]);
        assert_eq!(in_place(&with(|told| told.cluster_version = Some("3.6".into()))), ["version"]);
        assert_eq!(in_place(&with(|told| told.status.leader = 2)), ["leader"]);
        let enabled = api::etcdserverpb::DowngradeInfo { enabled: true, ..Default::default() };
        assert_eq!(in_place(&with(|told| told.status.downgrade_info = Some(enabled.clone()))), ["version"]);
        let mut one_away = three();
        one_away[2] = member(3, "c", None, 1);
        assert_eq!(in_place(&one_away), [] as [&str; 0]);
        one_away[1] = member(2, "b", None, 1);
        assert_eq!(in_place(&one_away), ["members"]);
        let named = [member(1, "a", ETCD, 1), member(2, "b=c", ETCD, 1), member(3, "c", ETCD, 1)];
        assert_eq!(in_place(&named), ["names"]);
        for name in ["-oProxyCommand=x", "--", "b\n", "\u{7f}", "\u{85}", "a"] {
            let named = [member(1, "a", ETCD, 1), member(2, name, ETCD, 1), member(3, "c", ETCD, 1)];
            assert_eq!(in_place(&named), ["names"], "{name:?}");
        }
        assert_eq!(worst(&three()[..2], Way::EmptyDisk, &[]), ["size"]);
        assert!(in_place(&[]).contains(&"size"));
    }

    #[test]
    fn names_of_new_members_are_checked_too() {
        let joiner = |name: &str, id: u64| Joiner {
            name: name.into(),
            peer_urls: vec![format!("http://10.0.0.{id}:2380")],
            client_urls: Vec::new(),
        };
        let of =
            |joining: Vec<Joiner>| names(&view(&three()), &Goal { to: Kind::Cairn, way: Way::NewAddresses, joining });
        let text = |joining| of(joining).map(|finding| finding.text);
        assert_eq!(text(vec![joiner("n", 11), joiner("o", 12)]), None);
        assert_eq!(text(vec![joiner("a", 1)]), None, "it is in the cluster already");
        let twice = "two members are called a: each needs a name of its own";
        assert_eq!(text(vec![joiner("a", 11)]).as_deref(), Some(twice));
        assert!(text(vec![joiner("-n", 11)]).is_some_and(|text| text.starts_with("-n: a name that begins with")));
        assert!(text(vec![joiner("n\r", 11)]).is_some_and(|text| text.starts_with("\"n\\r\": a name with control")));
        // One that has not started has none yet.
        let mut unnamed = three();
        unnamed.extend([learner(4, "", None, 1), learner(5, "", None, 1)]);
        let goal = Goal { to: Kind::Cairn, way: Way::NewAddresses, joining: Vec::new() };
        assert_eq!(names(&view(&unnamed), &goal), None);
    }

    #[test]
    fn small_clusters_are_told_that_they_cannot_be_resumed() {
        let goal = Goal { to: Kind::Cairn, way: Way::InPlace, joining: Vec::new() };
        let finding = size(&view(&three()[..2]), &goal).expect("a warning");
        assert!(
            finding.grade == Grade::Warn && finding.text.contains("start the stopped member by hand"),
            "{finding:?}"
        );
        assert_eq!(size(&view(&three()), &goal), None);
    }

    #[test]
    fn the_release_before_is_possible_both_ways() {
        let graded = |members: &[Seen], to: Kind, way: Way| {
            let all = versions(&view(members), &Goal { to, way, joining: Vec::new() });
            all.into_iter()
                .filter(|finding| finding.grade != Grade::Pass)
                .map(|finding| finding.grade)
                .collect::<Vec<_>>()
        };
        let members = with(|told| told.status.version = "3.6.8".into());
        assert_eq!(graded(&members, Kind::Cairn, Way::InPlace), [Grade::Warn]);
        assert_eq!(graded(&members, Kind::Etcd, Way::InPlace), []);
        let lowered = |shared: &str| {
            let mut members = three();
            for told in members.iter_mut().filter_map(|member| member.told.as_mut().ok()) {
                told.cluster_version = Some(shared.into());
                let target_version = "3.6.0".into();
                told.status.downgrade_info = Some(api::etcdserverpb::DowngradeInfo { enabled: true, target_version });
            }
            members
        };
        assert_eq!(graded(&lowered("3.6"), Kind::Etcd, Way::InPlace), [Grade::Warn]);
        assert_eq!(graded(&lowered("3.7"), Kind::Etcd, Way::InPlace), [Grade::Fail], "it is not lowered yet");
        assert_eq!(graded(&lowered("3.6"), Kind::Cairn, Way::InPlace), [Grade::Fail]);
        assert_eq!(graded(&lowered("3.6"), Kind::Etcd, Way::NewAddresses), [Grade::Fail], "etcd 3.6 cannot join");
    }
}
