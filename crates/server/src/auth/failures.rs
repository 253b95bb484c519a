//! Passwords that were wrong: who gives many has to wait.

use contain::lock;
use rpc::Origin;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;

/// Attempts that one address (or IPv6 network) has for one user, and the time until it regains one.
const USER: Allowance = Allowance { attempts_max: 10, again_ms: 1_000 };
/// Attempts that one address has for all users together, and the time until it regains one.
const ADDRESS: Allowance = Allowance { attempts_max: 200, again_ms: 50 };
/// Limit of entries per table.
const KEPT_MAX: usize = 10_000;

struct Allowance {
    attempts_max: u64,
    again_ms: u64,
}

/// When an address would have all of its attempts again.
type Table<K> = HashMap<K, u64>;

#[derive(Default)]
struct Tables {
    users: Table<u64>,
    addresses: Table<Origin>,
}

/// The recent attempts.
#[derive(Default)]
pub(super) struct Failures {
    tables: Mutex<Tables>,
    hashing: RandomState,
}

impl Failures {
    fn user_at(&self, user: &str, origin: Origin) -> u64 {
        self.hashing.hash_one((user, origin))
    }

    /// Takes one attempt; false if none is left. The attempt counts as failed until it is given back.
    pub(super) fn take(&self, user: &str, origin: Origin, now_ms: u64) -> bool {
        let user = self.user_at(user, origin);
        let mut tables = lock(&self.tables);
        let may = USER.has(&tables.users, &user, now_ms) && ADDRESS.has(&tables.addresses, &origin, now_ms);
        if may {
            USER.take(&mut tables.users, user, now_ms);
            ADDRESS.take(&mut tables.addresses, origin, now_ms);
        }
        may
    }

    /// Gives back an attempt that has not failed.
    pub(super) fn give_back(&self, user: &str, origin: Origin) {
        let user = self.user_at(user, origin);
        let mut tables = lock(&self.tables);
        USER.give_back(&mut tables.users, &user);
        ADDRESS.give_back(&mut tables.addresses, &origin);
    }
}

impl Allowance {
    fn has<K: Eq + std::hash::Hash>(&self, table: &Table<K>, key: &K, now_ms: u64) -> bool {
        table.get(key).is_none_or(|full_ms| {
            let others_ms = self.attempts_max.saturating_sub(1).saturating_mul(self.again_ms);
            *full_ms <= now_ms.saturating_add(others_ms)
        })
    }

    fn take<K: Eq + std::hash::Hash>(&self, table: &mut Table<K>, key: K, now_ms: u64) {
        if table.len() >= KEPT_MAX && !table.contains_key(&key) {
            table.retain(|_, full_ms| *full_ms > now_ms);
            // With so many addresses all attempts are forgotten. bcrypt's short queue still limits them.
            if table.len() >= KEPT_MAX {
                table.clear();
            }
        }
        let full_ms = table.entry(key).or_default();
        *full_ms = now_ms.max(*full_ms).saturating_add(self.again_ms);
    }

    fn give_back<K: Eq + std::hash::Hash>(&self, table: &mut Table<K>, key: &K) {
        if let Some(full_ms) = table.get_mut(key) {
            *full_ms = full_ms.saturating_sub(self.again_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv6Addr};

    const NOWHERE: Option<IpAddr> = None;

    fn from(address: impl Into<Option<IpAddr>>) -> Origin {
        Origin::of(address.into())
    }

    fn home() -> Origin {
        from(IpAddr::from([127, 0, 0, 1]))
    }

    #[test]
    fn attempts_come_back() {
        let failures = Failures::default();
        for _ in 0..USER.attempts_max {
            assert!(failures.take("ann", home(), 5));
        }
        assert!(!failures.take("ann", home(), 5));
        assert!(failures.take("bob", home(), 5) && failures.take("ann", from(NOWHERE), 5));
        assert!(!failures.take("ann", home(), 1_004));
        assert!(failures.take("ann", home(), 1_005) && !failures.take("ann", home(), 1_005));
        failures.give_back("ann", home());
        assert!(failures.take("ann", home(), 1_005));
    }

    #[test]
    fn an_address_has_fewer_than_its_users() {
        let failures = Failures::default();
        let taken = (0..1_000).filter(|user| failures.take(&user.to_string(), home(), 0)).count();
        assert_eq!(taken as u64, ADDRESS.attempts_max);
        assert!(failures.take("ann", from(NOWHERE), 0));
    }

    #[test]
    fn tables_are_bounded() {
        let failures = Failures::default();
        for number in 0..3 * KEPT_MAX as u32 {
            assert!(failures.take("ann", from(IpAddr::V4(number.into())), 0));
        }
        let tables = lock(&failures.tables);
        assert!(tables.users.len() <= KEPT_MAX && tables.addresses.len() <= KEPT_MAX);
    }

    #[test]
    fn the_addresses_of_one_network_clear_no_table() {
        let failures = Failures::default();
        assert_eq!((0..100).filter(|_| failures.take("ann", home(), 0)).count() as u64, USER.attempts_max);
        let network = (0..2 * KEPT_MAX as u128).map(|host| from(IpAddr::V6(Ipv6Addr::from_bits(0x2001 << 112 | host))));
        let taken = network.filter(|origin| failures.take("bob", *origin, 0)).count();
        assert_eq!(taken as u64, USER.attempts_max);
        assert!(!failures.take("ann", home(), 0), "what was counted of others still is");
    }
}
