//! What each client has taken, and who waits. Times are microseconds since some beginning.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

/// A client keeps its turn to take more than its share at a time for so long: calls that come together are no flood.
const BURST_US: u64 = 50_000;
/// What a client has taken too much is forgotten beyond this: its next call waits no longer than that takes.
const DEBT_US: u64 = 2_000_000;
/// Clients that called within this time share with each other.
const ACTIVE_US: u64 = 1_000_000;
const SECOND_US: u64 = 1_000_000;

/// Who is counted as one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    /// A user, wherever the calls come from.
    User(Arc<str>),
    /// Calls without a user, by their address; none for those through a Unix socket.
    Host(Option<IpAddr>),
}

/// A call that may go on.
#[derive(Debug)]
pub(crate) struct Turn {
    client: Client,
    /// What it was taken to cost when it was let through.
    expected_us: u64,
}

impl Turn {
    #[cfg(test)]
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
}

/// Whether a call may go on.
#[derive(Debug)]
pub(crate) enum Entry {
    /// At once.
    Now(Turn),
    /// Once its client is even again: [`Book::wait`].
    Later(Client),
}

struct Account<W> {
    /// What the client may take now; less than nothing if it has taken too much.
    balance_us: i64,
    /// When that was so.
    at_us: u64,
    /// What less than a microsecond was left over then, in millionths.
    rest: u64,
    /// What its calls cost of late.
    mean_us: u64,
    waiting: VecDeque<W>,
}

/// The accounts of all clients. `W` is a call that waits.
pub(crate) struct Book<W> {
    /// Work of a client in a second.
    rate_us: u64,
    accounts: HashMap<Client, Account<W>>,
    /// Accounts after the last time that those that are even were dropped.
    kept: usize,
    /// Those of whom calls wait.
    behind: HashSet<Client>,
    waiting: usize,
    waiting_max: usize,
    /// The last call, and the last one of any other client.
    latest: Option<(Client, u64)>,
    other_us: Option<u64>,
}

impl<W> Book<W> {
    pub(crate) fn new(rate_us: u64, waiting_max: usize) -> Book<W> {
        Book {
            rate_us: rate_us.max(1),
            accounts: HashMap::new(),
            kept: 0,
            behind: HashSet::new(),
            waiting: 0,
            waiting_max,
            latest: None,
            other_us: None,
        }
    }

    /// A call has come.
    pub(crate) fn enter(&mut self, client: Client, now_us: u64) -> Entry {
        self.note(&client, now_us);
        let is_alone = self.is_alone(&client, now_us);
        let rate_us = self.rate_us;
        let account = self.account(&client, now_us);
        account.refill(rate_us, now_us);
        if !account.waiting.is_empty() || (account.balance_us < 0 && !is_alone) {
            return Entry::Later(client);
        }
        Entry::Now(account.begin(client, is_alone, rate_us))
    }

    /// A call waits; whether it is the first one of its client. It is returned if too many do, of this client or of all.
    pub(crate) fn wait(&mut self, client: &Client, call: W, now_us: u64) -> Result<bool, W> {
        let (waiting, most) = (self.waiting, self.waiting_max);
        let account = self.account(client, now_us);
        // One client may have half of the places.
        if waiting >= most || account.waiting.len() >= most.div_ceil(2) {
            return Err(call);
        }
        account.waiting.push_back(call);
        self.waiting = self.waiting.saturating_add(1);
        Ok(self.behind.insert(client.clone()))
    }

    /// A call has been answered, or given up. It took this much. True if others of its client may go on now.
    pub(crate) fn settle(&mut self, turn: Turn, took_us: u64, now_us: u64) -> bool {
        let Turn { client, expected_us } = turn;
        let is_alone = self.is_alone(&client, now_us);
        let rate_us = self.rate_us;
        let account = self.account(&client, now_us);
        account.mean_us = account.mean_us.saturating_mul(7).saturating_add(took_us) / 8;
        // What a client takes while no other wants anything is given.
        let due_us = if is_alone { 0 } else { took_us };
        account.add(signed(expected_us).saturating_sub(signed(due_us)), rate_us);
        account.balance_us >= 0 && !account.waiting.is_empty()
    }

    /// A call that was let through was not made: it costs nothing.
    pub(crate) fn cancel(&mut self, turn: Turn, now_us: u64) {
        let rate_us = self.rate_us;
        self.account(&turn.client, now_us).add(signed(turn.expected_us), rate_us);
    }

    /// The calls that wait no longer, and when others may go on. Those without a turn are gone.
    pub(crate) fn due(&mut self, now_us: u64, is_gone: impl Fn(&W) -> bool) -> (Vec<(W, Option<Turn>)>, Option<u64>) {
        let (mut ready, mut next_us, rate_us) = (Vec::new(), None::<u64>, self.rate_us);
        let behind: Vec<Client> = self.behind.iter().cloned().collect();
        for client in behind {
            let is_alone = self.is_alone(&client, now_us);
            let Some(account) = self.accounts.get_mut(&client) else { continue };
            account.refill(rate_us, now_us);
            let before = ready.len();
            while (account.balance_us >= 0 || is_alone)
                && let Some(call) = account.waiting.pop_front()
            {
                let turn = (!is_gone(&call)).then(|| account.begin(client.clone(), is_alone, rate_us));
                ready.push((call, turn));
            }
            let (is_even, wait_us) = (account.waiting.is_empty(), account.balance_us.unsigned_abs());
            let went = ready.len().saturating_sub(before);
            self.waiting = self.waiting.saturating_sub(went);
            if is_even {
                self.behind.remove(&client);
            } else {
                let wait_us = wait_us.saturating_mul(SECOND_US) / rate_us;
                let at_us = now_us.saturating_add(wait_us.saturating_add(1));
                next_us = Some(next_us.map_or(at_us, |next_us| next_us.min(at_us)));
            }
            if went > 0 {
                // It takes time now, whenever it has called.
                self.note(&client, now_us);
            }
        }
        (ready, next_us)
    }

    /// Every call that waits.
    pub(crate) fn take_all(&mut self) -> Vec<W> {
        self.waiting = 0;
        self.behind.clear();
        self.accounts.drain().flat_map(|(_, account)| account.waiting).collect()
    }

    /// How many calls wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many clients there are accounts of.
    #[cfg(test)]
    pub(crate) fn accounts(&self) -> usize {
        self.accounts.len()
    }

    fn note(&mut self, client: &Client, now_us: u64) {
        match &mut self.latest {
            Some((latest, at_us)) if latest == client => *at_us = now_us,
            latest => {
                self.other_us = latest.take().map(|(_, at_us)| at_us).or(self.other_us);
                *latest = Some((client.clone(), now_us));
            }
        }
    }

    /// Whether no other client waits, nor has called of late.
    fn is_alone(&self, client: &Client, now_us: u64) -> bool {
        let other_us = match &self.latest {
            Some((latest, at_us)) if latest != client => Some(*at_us),
            _ => self.other_us,
        };
        let others_wait = self.behind.len() > usize::from(self.behind.contains(client));
        !others_wait && other_us.is_none_or(|at_us| now_us.saturating_sub(at_us) > ACTIVE_US)
    }

    fn account(&mut self, client: &Client, now_us: u64) -> &mut Account<W> {
        if !self.accounts.contains_key(client) {
            self.drop_even(now_us);
        }
        let balance_us = burst_us(self.rate_us);
        let fresh = || Account { balance_us, at_us: now_us, rest: 0, mean_us: 0, waiting: VecDeque::new() };
        self.accounts.entry(client.clone()).or_insert_with(fresh)
    }

    /// Drops the accounts of clients that have taken nothing for a while, before there are twice as many as after the last time.
    fn drop_even(&mut self, now_us: u64) {
        if self.accounts.len() < self.kept.saturating_mul(2).max(64) {
            return;
        }
        let (rate_us, burst_us) = (self.rate_us, burst_us(self.rate_us));
        self.accounts.retain(|_, account| {
            account.refill(rate_us, now_us);
            !account.waiting.is_empty() || account.balance_us < burst_us
        });
        self.kept = self.accounts.len();
    }
}

impl<W> Account<W> {
    fn refill(&mut self, rate_us: u64, now_us: u64) {
        let passed_us = now_us.saturating_sub(self.at_us);
        let more = passed_us.saturating_mul(rate_us).saturating_add(self.rest);
        (self.at_us, self.rest) = (now_us.max(self.at_us), more % SECOND_US);
        self.add(signed(more / SECOND_US), rate_us);
    }

    fn add(&mut self, by_us: i64, rate_us: u64) {
        let debt_us = signed(DEBT_US.saturating_mul(rate_us) / SECOND_US);
        self.balance_us = self.balance_us.saturating_add(by_us).clamp(debt_us.saturating_neg(), burst_us(rate_us));
    }

    /// A call goes on. It pays what the client's calls cost of late, so that many at once do not all find the balance untouched.
    fn begin(&mut self, client: Client, is_alone: bool, rate_us: u64) -> Turn {
        let expected_us = if is_alone { 0 } else { self.mean_us.max(1) };
        self.add(signed(expected_us).saturating_neg(), rate_us);
        Turn { client, expected_us }
    }
}

fn burst_us(rate_us: u64) -> i64 {
    signed(BURST_US.saturating_mul(rate_us) / SECOND_US)
}

fn signed(us: u64) -> i64 {
    i64::try_from(us).unwrap_or(i64::MAX)
}
