//! The keys that one user may read, or write, and the leases that have no others.

use super::ranges::Ranges;
use crate::log::{RwLock, read, write};
use crate::state::{Additions, Leases};
use api::KeyRange;
use std::collections::HashMap;

/// To look at a lease takes as many questions as there are ranges with keys of it. So few are asked each time.
const RANGES_FEW: usize = 8;
/// Leases that are known to be covered.
const LEASES_KEPT_MAX: usize = 1_000;

/// Ranges of keys, and leases with keys in these alone.
#[derive(Debug)]
pub(super) struct Granted {
    ranges: Ranges,
    /// How the leases were when that was found. A client may ask for the same one thousands of times in a turn.
    leases: RwLock<HashMap<i64, Additions>>,
}

impl Granted {
    pub(super) fn merge<'a>(ranges: impl Iterator<Item = KeyRange<'a>>) -> Granted {
        Granted { ranges: Ranges::merge(ranges), leases: RwLock::default() }
    }

    /// Whether every key of `range` is in them.
    pub(super) fn covers(&self, range: KeyRange<'_>) -> bool {
        self.ranges.covers(range)
    }

    /// Whether every key on a lease, or on any, is in them.
    pub(super) fn covers_leased(&self, lease: Option<i64>, leases: &Leases) -> bool {
        let ask = || leases.are_within(lease, |key| self.ranges.reach(key));
        let Some(id) = lease.filter(|_| self.ranges.count() > RANGES_FEW) else { return ask() };
        // Looked at first: what is added while the others are asked about is asked about next time.
        let Some(additions) = leases.additions(id) else { return true };
        if read(&self.leases).get(&id) == Some(&additions) {
            return true;
        }
        let is_covered = ask();
        if is_covered {
            let mut known = write(&self.leases);
            if known.len() >= LEASES_KEPT_MAX {
                known.clear();
            }
            known.insert(id, additions);
        }
        is_covered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Lease;
    use crate::test_support::least_time;
    use std::time::Duration;

    fn leases() -> Leases {
        Leases::new([1, 2].map(|id| Lease { id, ttl: 9, remaining_ttl: 0 }))
    }

    fn keys(count: usize) -> Vec<String> {
        (0..count).map(|key| format!("k{key:03}")).collect()
    }

    fn granted(keys: &[String]) -> Granted {
        Granted::merge(keys.iter().map(|key| KeyRange::One(key.as_bytes())))
    }

    #[test]
    fn a_lease_is_looked_at_once() {
        let (keys, leases) = (keys(300), leases());
        let granted = granted(&keys);
        keys.iter().for_each(|key| leases.attach(key.as_bytes(), 1));
        leases.attach(keys[0].as_bytes(), 2);
        let taken = |lease, enough: &dyn Fn(Duration) -> bool| {
            least_time(enough, || (0..100).for_each(|_| assert!(granted.covers_leased(Some(lease), &leases))))
        };
        let short = taken(2, &|_| true);
        let long = taken(1, &|long| long < short * 20);
        assert!(long < short * 20, "{long:?} and {short:?}");
    }

    #[test]
    fn a_lease_is_looked_at_again_with_another_key() {
        let (keys, leases) = (keys(RANGES_FEW + 1), leases());
        let granted = granted(&keys);
        let asked = |leases: &Leases| [1, 2, 3].map(|lease| granted.covers_leased(Some(lease), leases));
        assert_eq!(asked(&leases), [true; 3]);
        keys.iter().for_each(|key| leases.attach(key.as_bytes(), 1));
        assert_eq!(asked(&leases), [true; 3]);
        leases.attach(b"other", 1);
        assert_eq!(asked(&leases), [false, true, true]);
        leases.attach(b"other", 2);
        assert_eq!(asked(&leases), [true, false, true]);
        leases.attach(b"other", 0);
        assert_eq!(asked(&leases), [true; 3]);
        // All are gone, and others come.
        keys.iter().for_each(|key| leases.attach(key.as_bytes(), 0));
        assert_eq!(asked(&leases), [true; 3]);
        leases.attach(b"other", 1);
        assert_eq!(asked(&leases), [false, true, true]);
    }

    #[test]
    fn a_lease_of_another_state_is_another_one() {
        let (keys, before, after) = (keys(RANGES_FEW + 1), leases(), leases());
        let granted = granted(&keys);
        before.attach(keys[0].as_bytes(), 1);
        after.attach(b"other", 1);
        assert!(granted.covers_leased(Some(1), &before));
        let after = before.replace(after);
        assert!(!granted.covers_leased(Some(1), &before));
        before.replace(after);
        assert!(granted.covers_leased(Some(1), &before));
    }

    #[test]
    fn few_leases_are_kept() {
        let (keys, leases) = (keys(RANGES_FEW + 1), leases());
        let granted = granted(&keys);
        for lease in 0..=LEASES_KEPT_MAX as i64 {
            leases.attach(keys[0].as_bytes(), lease + 1);
            assert!(granted.covers_leased(Some(lease + 1), &leases));
        }
        assert_eq!(read(&granted.leases).len(), 1);
    }
}
