//! The sub-commands, and finding the one that a command line names.

use flags::Flag;

use super::command::{Action, Command};
use super::{lease_keepalive, mvcc, put, range, stm, txn_mixed, txn_put, watch, watch_get, watch_latency};

/// The sub-commands in alphabetical order, as in etcd's tool.
pub(crate) const COMMANDS: &[Command] = &[
    lease_keepalive::COMMAND,
    mvcc::COMMAND,
    put::COMMAND,
    range::COMMAND,
    stm::COMMAND,
    txn_mixed::COMMAND,
    txn_put::COMMAND,
    watch::COMMAND,
    watch_get::COMMAND,
    watch_latency::COMMAND,
];

/// The sub-command at the beginning of a command line.
pub(crate) struct Found {
    pub(crate) path: Vec<&'static Command>,
    /// The words that are left.
    pub(crate) rest: Vec<String>,
}

/// Finds the sub-command that `words` name; flags may precede it. Fails with the word that is no sub-command.
pub(crate) fn find(words: &[String], globals: &[Flag]) -> Result<Found, String> {
    let (mut path, mut rest, mut table) = (Vec::<&'static Command>::new(), Vec::new(), COMMANDS);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" || table.is_empty() {
            rest.push(word.clone());
            rest.extend(words.cloned());
            break;
        }
        if word.len() > 1 && word.starts_with('-') {
            rest.push(word.clone());
            let own = path.last().map_or(&[][..], |command| command.flags);
            if flags::takes_next(word, globals.iter().chain(own)) {
                rest.extend(words.next().cloned());
            }
            continue;
        }
        match table.iter().find(|command| command.name == word) {
            Some(command) => {
                path.push(command);
                table = match command.action {
                    Action::Group(commands) => commands,
                    Action::Run(_) => &[],
                };
            }
            None if path.is_empty() => return Err(word.clone()),
            // A group prints its page.
            None => {
                rest.push(word.clone());
                table = &[];
            }
        }
    }
    Ok(Found { path, rest })
}
