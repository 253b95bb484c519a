//! Chooses the URL of a peer that is tried next.

use contain::lock;
use std::sync::Mutex;

/// The URLs of a peer. The one that worked last is used until it fails.
pub(crate) struct Picker(Mutex<(Vec<String>, usize)>);

impl Picker {
    pub(crate) fn new(urls: Vec<String>) -> Picker {
        Picker(Mutex::new((urls, 0)))
    }

    /// Replaces the URLs; false if they are the same.
    pub(crate) fn replace(&self, urls: Vec<String>) -> bool {
        let mut state = lock(&self.0);
        let differ = state.0 != urls;
        if differ {
            *state = (urls, 0);
        }
        differ
    }

    /// The URL to use; empty if there is none.
    pub(crate) fn pick(&self) -> String {
        let state = lock(&self.0);
        state.0.get(state.1).cloned().unwrap_or_default()
    }

    /// All URLs, separated by commas, for the log.
    pub(crate) fn list(&self) -> String {
        lock(&self.0).0.join(",")
    }

    /// Moves on to the next URL because this one did not work, unless another thread has already done so.
    pub(crate) fn failed(&self, url: &str) {
        let mut state = lock(&self.0);
        if state.0.get(state.1).is_some_and(|current| current == url) {
            state.1 = state.1.saturating_add(1).checked_rem(state.0.len()).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_tried_in_turn() {
        let picker = Picker::new(vec!["a".into(), "b".into()]);
        assert_eq!(picker.pick(), "a");
        picker.failed("b");
        assert_eq!(picker.pick(), "a");
        picker.failed("a");
        picker.failed("a");
        assert_eq!(picker.pick(), "b");
        assert!(!picker.replace(vec!["a".into(), "b".into()]));
        assert_eq!(picker.pick(), "b");
        assert!(picker.replace(vec!["c".into()]));
        picker.failed("c");
        assert_eq!(picker.pick(), "c");
        assert!(picker.replace(Vec::new()));
        picker.failed("c");
        assert_eq!(picker.pick(), "");
    }
}
