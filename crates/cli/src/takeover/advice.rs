//! What to do when it has stopped, or is done.

use super::settings::{Settings, Way};
use super::view::{Kind, View};
use crate::failure::{Failure, code};

/// A failure, with how to go on and how to go back.
pub(super) fn after(failure: Failure, settings: &Settings) -> Failure {
    if failure.text.is_empty() {
        return failure;
    }
    let (to, from) = (settings.goal.to, settings.goal.to.other());
    let back = match (settings.goal.way, to) {
        // Cairn is where etcd was.
        (Way::InPlace, Kind::Cairn) if settings.hooks.is_none() => {
            format!("with --back --data-dir={}", settings.dirs.old)
        }
        (_, Kind::Cairn) => "with --back".into(),
        (_, Kind::Etcd) => "without --back".into(),
    };
    let on = match failure.code {
        code::DIFFERENCE => "Do not go on. Find out which member differs (the odd one out), and remove it",
        _ => "To go on: mend that, and start the same command again; it goes on where it stopped",
    };
    let return_way = match (settings.goal.way, to) {
        (Way::InPlace, Kind::Cairn) => format!(
            "To go back: start the same command {back}; it moves the members that {to} runs to {from} again. A member that does \
             not start as {to}: if its directory has no etcd-backup-*, start {from} on it as before; otherwise \
             `cairn util export` makes a directory for {from} of it. Never put a backup back while the others run"
        ),
        (Way::InPlace, Kind::Etcd) => format!(
            "To go back: start the same command {back}, with the exported directories as --data-dir. A member that does not start \
             as {to} has its data in {from}'s directory as before: start {from} on it, if {to} has never run with the exported one"
        ),
        _ => format!(
            "To go back: a learner can be removed (etcdctl member remove ID); members that have moved go back by the same command \
             {back}"
        ),
    };
    Failure { text: format!("{}\n{on}.\n{return_way}.", failure.text), ..failure }
}

/// The last words when all is well.
pub(super) fn at_the_end(view: &View, settings: &Settings) -> String {
    let (to, count) = (settings.goal.to, view.members.len());
    let rest = match (settings.goal.way, to) {
        (Way::InPlace, Kind::Cairn) => {
            "The data of etcd is kept beside theirs, as etcd-backup-TIME: delete it once you are sure. It is older than what they have \
             now, so do not start it again."
        }
        (Way::InPlace, Kind::Etcd) => "Do not start Cairn again on the directories that it had.",
        _ => "The data of the members that were removed is no longer needed.",
    };
    format!("Done: all {count} members run {to}. {rest}\n")
}

#[cfg(test)]
mod tests {
    use super::super::settings::FLAGS;
    use super::super::view::samples::{member, view};
    use super::*;

    fn settings(line: &str) -> Settings {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        Settings::read(&crate::flags::parse(&words, FLAGS).expect("a command line")).expect("settings")
    }

    #[test]
    fn failures_say_how_to_go_on_and_back() {
        let said = |line: &str, code: i32| after(Failure::new(code, "what"), &settings(line)).text;
        let forth = said("", code::LATE);
        assert!(
            forth.starts_with("what\nTo go on: ")
                && forth.contains("the same command with --back --data-dir=/var/lib/etcd;"),
            "{forth}"
        );
        assert!(said("--back --data-dir=/d", code::ERROR).contains("the same command without --back"));
        assert!(said("", code::DIFFERENCE).contains("Do not go on"));
        assert_eq!(after(Failure::new(code::ERROR, ""), &settings("")).text, "");
    }

    #[test]
    fn the_end_names_what_is_left() {
        let view = view(&[member(1, "a", Some(Kind::Cairn), 1)]);
        assert!(
            at_the_end(&view, &settings("")).starts_with("Done: all 1 members run Cairn. The data of etcd is kept")
        );
    }
}
