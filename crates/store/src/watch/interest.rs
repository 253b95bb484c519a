//! Watchers of one stream that asked for the same.

use std::collections::HashMap;
use std::sync::Arc;

use slab::Slab;

use super::spec::Spec;
use super::watchers::Member;

/// One spec and the watchers that have it.
#[derive(Clone)]
pub(super) struct Interest {
    pub(super) spec: Spec,
    /// Shared with responses under way, so that handing an event to a thousand watchers copies no list.
    pub(super) members: Arc<Vec<Member>>,
}

/// Interests by spec, with numbers that others refer to.
#[derive(Default)]
pub(super) struct Interests {
    slots: Slab<Interest>,
    by_spec: HashMap<Spec, u32>,
}

impl Interests {
    /// Adds watchers. Returns the interest's number, and true when it is new.
    pub(super) fn add(&mut self, spec: &Spec, members: &[Member]) -> (u32, bool) {
        if let Some(&number) = self.by_spec.get(spec)
            && let Some(interest) = self.slots.get_mut(number as usize)
        {
            Arc::make_mut(&mut interest.members).extend_from_slice(members);
            return (number, false);
        }
        let interest = Interest { spec: spec.clone(), members: Arc::new(members.to_vec()) };
        let number = self.slots.insert(interest) as u32;
        self.by_spec.insert(spec.clone(), number);
        (number, true)
    }

    /// Removes a watcher. Returns the spec when it was the last one and the interest is gone.
    pub(super) fn remove(&mut self, number: u32, member: Member) -> Option<Spec> {
        let members = Arc::make_mut(&mut self.slots.get_mut(number as usize)?.members);
        members.retain(|other| *other != member);
        members.is_empty().then(|| self.drop_interest(number))
    }

    /// Keeps the watchers that `keep` wants. Returns interests that are gone, with their numbers.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Member) -> bool) -> Vec<(u32, Spec)> {
        let mut emptied = Vec::new();
        for (number, interest) in &mut self.slots {
            if !interest.members.iter().all(&mut keep) {
                Arc::make_mut(&mut interest.members).retain(&mut keep);
                if interest.members.is_empty() {
                    emptied.push(number as u32);
                }
            }
        }
        emptied.into_iter().map(|number| (number, self.drop_interest(number))).collect()
    }

    fn drop_interest(&mut self, number: u32) -> Spec {
        let interest = self.slots.remove(number as usize);
        self.by_spec.remove(&interest.spec);
        interest.spec
    }

    pub(super) fn get(&self, number: u32) -> Option<&Interest> {
        self.slots.get(number as usize)
    }

    /// Interests in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Interest)> {
        self.slots.iter().map(|(number, interest)| (number as u32, interest))
    }

    /// All interests, without their numbers.
    pub(super) fn into_all(self) -> impl Iterator<Item = Interest> {
        self.slots.into_iter().map(|(_, interest)| interest)
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}
