//! The claims that wait for room in one pool. Hosts take turns, and so do the connections of each host: a client with many claims delays
//! its own, not those of others.
//!
//! A connection that has its share leaves the turns of its host until something of its own is released, and a host that has its share
//! leaves the turns of the line. Meanwhile they delay no other claim. A host that asks for more than a share, which it may have while it
//! holds nothing else, delays none either: its turn comes again whenever something is released.

use crate::claim::Claim;
use crate::shares::origin;
use api::{Error, limits};
use rpc::{Address, Origin};
use std::collections::{HashMap, VecDeque};
use std::time::Instant;

/// Whether a claim that waits is still needed. Called under the budget's lock.
pub(crate) type Needed = Box<dyn Fn() -> bool + Send>;

/// Called with the claim once it is granted, or with the refusal.
pub(crate) type Then = Box<dyn FnOnce(Result<Claim, Error>) + Send>;

pub(crate) struct Waiter {
    pub(crate) bytes: u64,
    pub(crate) client: Option<Address>,
    pub(crate) since: Instant,
    pub(crate) needed: Needed,
    pub(crate) then: Then,
}

/// The decision about a waiter.
pub(crate) enum Verdict {
    Granted(Claim),
    /// Its connection has its share.
    Connection,
    /// Its host has.
    Host,
    /// There is no room for anybody.
    Full,
    /// There is none for this much, which is more than a host's share.
    Large,
}

#[derive(Default)]
pub(crate) struct Line {
    hosts: HashMap<Origin, Host>,
    turns: VecDeque<Origin>,
    /// Hosts whose turn waits until anything of the pool is released.
    aside: Vec<Origin>,
    len: usize,
}

#[derive(Default)]
struct Host {
    connections: HashMap<Option<Address>, Connection>,
    turns: VecDeque<Option<Address>>,
    has_turn: bool,
    len: usize,
}

/// The waiters of one connection, in the order they came.
#[derive(Default)]
struct Connection {
    waiters: VecDeque<Waiter>,
    has_turn: bool,
}

impl Line {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether a connection waits.
    pub(crate) fn has(&self, client: Option<Address>) -> bool {
        self.hosts.get(&origin(client)).is_some_and(|host| host.connections.contains_key(&client))
    }

    /// Whether a host waits that asks for more than a share, and had no room.
    pub(crate) fn has_large(&self) -> bool {
        self.aside.iter().any(|of| self.hosts.contains_key(of))
    }

    /// The claim of a host that is next. If its host has its share, connections that have theirs come after it or have left the turns.
    pub(crate) fn next_of(&self, of: Origin) -> Option<&Waiter> {
        let host = self.hosts.get(&of)?;
        host.connections.get(host.turns.front()?)?.waiters.front()
    }

    /// Adds a waiter. Returns the one that must go, if any: if its host has a quarter of the places already, this one; if all places are
    /// taken, the newest of the host with most.
    pub(crate) fn add(&mut self, waiter: Waiter) -> Option<Waiter> {
        let of = origin(waiter.client);
        let own = self.hosts.get(&of).map_or(0, |host| host.len);
        if own >= limits::BUDGET_QUEUE_MAX / 4 {
            return Some(waiter);
        }
        let mut evicted = None;
        if self.len >= limits::BUDGET_QUEUE_MAX {
            let most = self.hosts.iter().max_by_key(|(_, host)| host.len).map(|(most, host)| (*most, host.len));
            match most.filter(|(_, len)| *len > own) {
                Some((most, _)) => evicted = self.newest(most),
                None => return Some(waiter),
            }
        }
        let client = waiter.client;
        let host = self.hosts.entry(of).or_default();
        let connection = host.connections.entry(client).or_default();
        let is_first = connection.waiters.is_empty();
        connection.waiters.push_back(waiter);
        host.len = host.len.saturating_add(1);
        self.len = self.len.saturating_add(1);
        if is_first {
            self.give_turn(client);
        }
        evicted
    }

    /// Something of this client was released: it may be its turn again.
    pub(crate) fn give_turn(&mut self, client: Option<Address>) {
        let of = origin(client);
        let Some(host) = self.hosts.get_mut(&of) else { return };
        if let Some(connection) = host.connections.get_mut(&client)
            && !std::mem::replace(&mut connection.has_turn, true)
        {
            host.turns.push_back(client);
        }
        if !std::mem::replace(&mut host.has_turn, true) {
            self.turns.push_back(of);
        }
    }

    /// Something was released: hosts that ask for more than a share have their turn, before all others.
    pub(crate) fn give_back_turns(&mut self) {
        for of in std::mem::take(&mut self.aside) {
            if let Some(host) = self.hosts.get_mut(&of)
                && !std::mem::replace(&mut host.has_turn, true)
            {
                self.turns.push_front(of);
            }
        }
    }

    /// Grants what can be granted, to one host after the other. True if there was no room for a claim within its shares.
    pub(crate) fn serve(
        &mut self,
        mut grant: impl FnMut(&Waiter) -> Verdict,
        mut granted: impl FnMut(Waiter, Claim),
    ) -> bool {
        while let Some(of) = self.turns.pop_front() {
            let Some(host) = self.hosts.get_mut(&of) else { continue };
            host.has_turn = false;
            match host.serve(&mut grant) {
                Served::Granted(waiter, claim) => {
                    host.has_turn = host.len > 0;
                    if host.has_turn {
                        self.turns.push_back(of);
                    } else {
                        self.hosts.remove(&of);
                    }
                    self.len = self.len.saturating_sub(1);
                    granted(waiter, claim);
                }
                Served::Blocked => {}
                Served::Large => self.aside.push(of),
                Served::Full => {
                    host.has_turn = true;
                    self.turns.push_front(of);
                    return true;
                }
            }
        }
        false
    }

    /// Takes out the waiters that came at or before `before`, or all.
    pub(crate) fn late(&mut self, before: Option<Instant>, mut late: impl FnMut(Waiter)) {
        let is_late = |waiter: &Waiter| before.is_none_or(|before| waiter.since <= before);
        let mut gone = 0_usize;
        self.hosts.retain(|_, host| {
            let of_host = gone;
            host.connections.retain(|_, connection| {
                while connection.waiters.front().is_some_and(is_late)
                    && let Some(waiter) = connection.waiters.pop_front()
                {
                    late(waiter);
                    gone = gone.saturating_add(1);
                }
                !connection.waiters.is_empty()
            });
            host.len = host.len.saturating_sub(gone.saturating_sub(of_host));
            host.len > 0
        });
        self.len = self.len.saturating_sub(gone);
        self.forget_turns();
    }

    /// Takes out the waiters of a connection that are not needed any more. Who waited behind them has its turn.
    pub(crate) fn leave(&mut self, client: Option<Address>) -> Vec<Waiter> {
        let of = origin(client);
        let Some(host) = self.hosts.get_mut(&of) else { return Vec::new() };
        let Some(connection) = host.connections.get_mut(&client) else { return Vec::new() };
        let all = std::mem::take(&mut connection.waiters);
        let (kept, gone): (Vec<Waiter>, Vec<Waiter>) = all.into_iter().partition(|waiter| (waiter.needed)());
        connection.waiters = kept.into();
        if gone.is_empty() {
            return gone;
        }
        host.len = host.len.saturating_sub(gone.len());
        self.len = self.len.saturating_sub(gone.len());
        if connection.waiters.is_empty() {
            host.connections.remove(&client);
            if host.connections.is_empty() {
                self.hosts.remove(&of);
            }
            self.forget_turns();
        }
        self.give_turn(client);
        gone
    }

    /// Removes the turns of hosts and connections without waiters, so that none comes twice.
    fn forget_turns(&mut self) {
        for host in self.hosts.values_mut() {
            let connections = &host.connections;
            host.turns.retain(|client| connections.contains_key(client));
        }
        let hosts = &self.hosts;
        self.turns.retain(|of| hosts.contains_key(of));
        self.aside.retain(|of| hosts.contains_key(of));
    }

    /// Takes the newest waiter of a host out.
    fn newest(&mut self, of: Origin) -> Option<Waiter> {
        let host = self.hosts.get_mut(&of)?;
        let back = |connection: &Connection| connection.waiters.back().map(|waiter| waiter.since);
        let (client, _) = host.connections.iter().max_by_key(|(_, connection)| back(connection))?;
        let client = *client;
        let connection = host.connections.get_mut(&client)?;
        let waiter = connection.waiters.pop_back()?;
        if connection.waiters.is_empty() {
            host.connections.remove(&client);
            host.turns.retain(|other| *other != client);
        }
        host.len = host.len.saturating_sub(1);
        self.len = self.len.saturating_sub(1);
        if host.len == 0 {
            self.hosts.remove(&of);
            self.turns.retain(|other| *other != of);
        }
        Some(waiter)
    }
}

enum Served {
    Granted(Waiter, Claim),
    /// All of the host have their share, or it has.
    Blocked,
    Full,
    /// Its next one asks for more than a share.
    Large,
}

impl Host {
    fn serve(&mut self, grant: &mut impl FnMut(&Waiter) -> Verdict) -> Served {
        while let Some(client) = self.turns.pop_front() {
            let Some(connection) = self.connections.get_mut(&client) else { continue };
            connection.has_turn = false;
            let Some(verdict) = connection.waiters.front().map(&mut *grant) else { continue };
            match verdict {
                Verdict::Granted(claim) => {
                    let Some(waiter) = connection.waiters.pop_front() else { continue };
                    connection.has_turn = !connection.waiters.is_empty();
                    if connection.has_turn {
                        self.turns.push_back(client);
                    } else {
                        self.connections.remove(&client);
                    }
                    self.len = self.len.saturating_sub(1);
                    return Served::Granted(waiter, claim);
                }
                Verdict::Connection => {}
                Verdict::Host | Verdict::Full | Verdict::Large => {
                    connection.has_turn = true;
                    self.turns.push_front(client);
                    return match verdict {
                        Verdict::Full => Served::Full,
                        Verdict::Large => Served::Large,
                        _ => Served::Blocked,
                    };
                }
            }
        }
        Served::Blocked
    }
}
