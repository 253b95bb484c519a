//! Watchers of one stream that asked for the same.

use std::collections::HashMap;
use std::sync::Arc;

use slab::Slab;

use super::spec::Spec;
use super::watchers::Member;
use crate::mistake::Mistake;

/// One spec and the watchers that have it.
#[derive(Clone)]
pub(super) struct Interest {
    pub(super) spec: Spec,
    /// Shared with responses under way, so that handing an event to a thousand watchers copies no list.
    pub(super) members: Arc<Vec<Member>>,
    /// How many of them were cancelled, and get nothing.
    gone: usize,
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
        let interest = Interest { spec: spec.clone(), members: Arc::new(members.to_vec()), gone: 0 };
        let number = self.slots.insert(interest) as u32;
        self.by_spec.insert(spec.clone(), number);
        (number, true)
    }

    /// Notes that one of an interest's watchers was cancelled. Returns the spec if it was the last one and the interest is gone. The list
    /// is cleaned, by asking which watchers are still `there`, once half of them were cancelled: so a cancellation costs little however
    /// many watchers there are.
    pub(super) fn remove(&mut self, number: u32, there: impl FnMut(&Member) -> bool) -> Option<Spec> {
        let interest = self.slots.get_mut(number as usize)?;
        interest.gone = interest.gone.saturating_add(1);
        let left = interest.members.len().saturating_sub(interest.gone);
        if left <= usize::from(Mistake::LastButOneEndsInterest.is_planted()) {
            return Some(self.drop_interest(number));
        }
        if left < interest.gone {
            // A copy of its own without them, if a response under way has the list.
            interest.members = Arc::new(interest.members.iter().copied().filter(there).collect());
            interest.gone = 0;
        }
        None
    }

    /// Keeps the watchers that `keep` wants. Returns interests that are gone, with their numbers.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Member) -> bool) -> Vec<(u32, Spec)> {
        let mut emptied = Vec::new();
        for (number, interest) in &mut self.slots {
            if !interest.members.iter().all(&mut keep) {
                Arc::make_mut(&mut interest.members).retain(&mut keep);
                interest.gone = 0;
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

    /// The interest, if there is one alone.
    pub(super) fn only(&self) -> Option<&Interest> {
        if self.slots.len() == 1 { self.iter().next().map(|(_, interest)| interest) } else { None }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::watchers::Watchers;
    use api::etcdserverpb::WatchCreateRequest;

    #[test]
    fn a_cancellation_touches_few() {
        let mut watchers = Watchers::default();
        let members: Vec<Member> = (0..1_000).map(|id| watchers.add(id, 0, false, 1)).collect();
        let request = WatchCreateRequest { key: "k".into(), ..Default::default() };
        let spec = Spec::new(&request).expect("a range");
        let mut interests = Interests::default();
        let (number, _) = interests.add(&spec, &members);
        // A response under way has the list.
        let under_way = interests.get(number).map(|interest| interest.members.clone());
        let looked = std::cell::Cell::new(0);
        for (at, member) in members.iter().enumerate() {
            watchers.remove(*member);
            let last = interests.remove(number, |member| {
                looked.set(looked.get() + 1);
                watchers.get(*member).is_some()
            });
            assert_eq!(last.is_some(), at + 1 == members.len());
            let listed = interests.get(number).map_or(0, |interest| interest.members.len());
            let there = members.len() - at - 1;
            assert!(listed >= there && listed <= 2 * there + 1, "{listed} listed of {there}");
        }
        assert!(looked.get() <= 2 * members.len(), "each cancellation looks at two on average");
        assert_eq!((under_way.map(|members| members.len()), interests.is_empty()), (Some(1_000), true));
    }
}
