//! Watchers that read the log from one cursor.

use std::collections::BTreeMap;

use super::interest::Interests;
use super::matcher::Matcher;
use super::spec::Spec;
use super::watchers::{Member, Watchers};

/// Watchers with the same cursor: one read of the log serves them all.
pub(super) struct Cohort {
    pub(super) interests: Interests,
    pub(super) matcher: Matcher<u32>,
    /// The stream's count of cancellations when this cohort last dropped cancelled members.
    swept_at: u64,
}

impl Cohort {
    fn new(cancellations: u64) -> Self {
        Cohort { interests: Interests::default(), matcher: Matcher::new(), swept_at: cancellations }
    }

    fn add(&mut self, spec: &Spec, members: &[Member]) {
        let (number, fresh) = self.interests.add(spec, members);
        if fresh {
            self.matcher.insert(spec, number);
        }
    }

    /// Cuts the cohort in two: what one read may bring is too much for all of it.
    pub(super) fn halve(self) -> (Cohort, Cohort) {
        let (mut one, mut other) = (Cohort::new(self.swept_at), Cohort::new(self.swept_at));
        let half = self.interests.len() / 2;
        for (place, interest) in self.interests.into_all().enumerate() {
            let part = if place < half { &mut one } else { &mut other };
            part.add(&interest.spec, &interest.members);
        }
        (one, other)
    }

    fn merge(&mut self, other: Cohort) {
        for (_, interest) in other.interests.iter() {
            self.add(&interest.spec, &interest.members);
        }
        self.swept_at = self.swept_at.min(other.swept_at);
    }

    /// Drops members that were cancelled, if any were.
    pub(super) fn sweep(&mut self, watchers: &Watchers, cancellations: u64) {
        if self.swept_at != cancellations {
            self.swept_at = cancellations;
            for (number, spec) in self.interests.retain(|member| watchers.get(*member).is_some()) {
                self.matcher.remove(&spec, number);
            }
        }
    }

    /// Every member, interest by interest.
    pub(super) fn members(&self) -> impl Iterator<Item = Member> {
        self.interests.iter().flat_map(|(_, interest)| interest.members.iter().copied())
    }
}

/// A stream's cohorts by cursor: the next revision to read.
#[derive(Default)]
pub(super) struct Cohorts {
    by_cursor: BTreeMap<i64, Cohort>,
    newest_next: bool,
}

impl Cohorts {
    /// Adds watchers at a cursor.
    pub(super) fn add(&mut self, cursor: i64, spec: &Spec, members: &[Member], cancellations: u64) {
        self.by_cursor.entry(cursor).or_insert_with(|| Cohort::new(cancellations)).add(spec, members);
    }

    /// Puts back a cohort that has read up to `cursor`. It merges with the cohort at that cursor, if there is one.
    pub(super) fn put(&mut self, cursor: i64, cohort: Cohort) {
        match self.by_cursor.get_mut(&cursor) {
            Some(other) => other.merge(cohort),
            None => {
                self.by_cursor.insert(cursor, cohort);
            }
        }
    }

    /// Takes the cohort with the lowest cursor, if `wanted` says so of that.
    pub(super) fn take_first_if(&mut self, wanted: impl FnOnce(i64) -> bool) -> Option<Cohort> {
        let first = self.by_cursor.first_entry()?;
        wanted(*first.key()).then(|| first.remove())
    }

    pub(super) fn take(&mut self, cursor: i64) -> Option<Cohort> {
        self.by_cursor.remove(&cursor)
    }

    /// Whose turn it is, and the cursor of the cohort after it, where the two merge. The oldest and the newest take turns: the
    /// oldest collects the others on its way, so the log is read about once for all; the newest is level soon.
    pub(super) fn take_next(&mut self) -> Option<(i64, Cohort, Option<i64>)> {
        self.newest_next = !self.newest_next;
        let (cursor, cohort) = match self.newest_next {
            true => self.by_cursor.pop_last()?,
            false => self.by_cursor.pop_first()?,
        };
        let next = self.by_cursor.range(cursor..).next().map(|(cursor, _)| *cursor);
        Some((cursor, cohort, next))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_cursor.is_empty()
    }
}
