//! Suggestions for a command that does not exist.

use crate::command::Command;

/// Names at most this many letters away are proposed.
const DISTANCE_MAX: usize = 2;

/// The only command of `table` that is called `word`, or whose name alone begins with it.
pub(crate) fn find(table: &'static [Command], word: &str) -> Option<&'static Command> {
    let is_called = |command: &&Command| command.name == word;
    table.iter().find(is_called).or_else(|| {
        let mut begun = table.iter().filter(|command| command.name.starts_with(word));
        begun.next().filter(|_| !word.is_empty() && begun.next().is_none())
    })
}

/// The names that `word` may have been meant for.
pub(crate) fn names(table: &'static [Command], word: &str) -> Vec<&'static str> {
    let word = word.to_lowercase();
    let is_near = |name: &&str| distance(&word, name) <= DISTANCE_MAX || name.starts_with(&word);
    table.iter().map(|command| command.name).filter(is_near).collect()
}

/// Letters to be changed, put in or left out, to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut above_left = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.iter().enumerate() {
            let changed = above_left + usize::from(a != b);
            above_left = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(above_left + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::COMMANDS;

    #[test]
    fn names_are_completed_if_only_one_begins_so() {
        let found = |word: &str| find(COMMANDS, word).map(|command| command.name);
        assert_eq!(
            (found("compact"), found("comp"), found("get"), found("")),
            (Some("compaction"), None, Some("get"), None)
        );
        assert_eq!((found("mem"), found("nonsense")), (Some("member"), None));
    }

    #[test]
    fn slips_are_understood() {
        assert_eq!(names(COMMANDS, "gte"), ["get"]);
        assert_eq!(names(COMMANDS, "comp"), ["compaction", "completion"]);
        assert_eq!(names(COMMANDS, "M"), ["move-leader", "member", "make-mirror"]);
        assert!(names(COMMANDS, "nonsense").is_empty());
        assert_eq!((distance("", "abc"), distance("kitten", "sitting")), (3, 3));
    }
}
