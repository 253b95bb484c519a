//! `lease-keepalive`: renews leases, each time on a stream of its own, as etcd's clients do it once.

use std::sync::{Arc, Mutex, PoisonError};

use flags::{Parsed, int};

use super::command::{Action, Command};
use super::failure::{Failure, Outcome};
use super::say;
use super::session::{Pace, Session};
use super::single::Simple;
use crate::wire;
use crate::work::Request;
use api::varint::put_nonzero;

/// How long the leases live, in seconds.
const TTL: u64 = 100;

pub(crate) const COMMAND: Command = Command {
    name: "lease-keepalive",
    arguments: "",
    short: "Benchmark lease keepalive",
    long: "Benchmark lease keepalive: renews leases, as many as there are clients",
    flags: &[
        int(
            "rate",
            "0",
            "renewals per second, sent whatever the answers do (0: each client sends when it has its answer)",
        ),
        int("total", "10000", "renewals altogether"),
    ],
    action: Action::Run(run),
};

fn run(parsed: &Parsed) -> Outcome {
    let session = Session::open(parsed)?;
    let pace = session.pace()?;
    let ids = Arc::<Mutex<Vec<u64>>>::default();
    if pace.total != Some(0) {
        let grants = Pace { total: Some(session.clients() as u64), rate: 0, shows_bar: false };
        let (meters, _) = session.measure(grants, 1, || Grants { ids: ids.clone() })?;
        if let Some(text) = meters[0].texts.keys().next() {
            return Err(Failure::new(format!("cannot grant a lease: {text}")));
        }
    }
    let ids = std::mem::take(&mut *ids.lock().unwrap_or_else(PoisonError::into_inner));
    if ids.is_empty() && pace.total != Some(0) && session.has_work() {
        // The user pressed Ctrl-C before there were leases.
        return Ok(());
    }
    let (meters, cost) = session.measure(pace, 1, || Renewals { ids: ids.clone(), next: 0 })?;
    say(&session.tell("lease-keepalive", &meters[0], cost));
    session.end()
}

/// Makes leases.
struct Grants {
    ids: Arc<Mutex<Vec<u64>>>,
}

/// The id of a lease. LeaseGrantResponse and LeaseKeepAliveResponse have id and time to live in the same fields. The
/// time of a lease that no longer exists is 0.
fn lease(message: &[u8]) -> Result<u64, &'static str> {
    match (wire::number(message, 2), wire::number(message, 3)) {
        (Some(id @ 1..), Some(ttl)) if i64::try_from(ttl).is_ok_and(|ttl| ttl > 0) => Ok(id),
        (Some(_), Some(_)) => Err("etcdserver: requested lease not found"),
        _ => Err("an answer that cannot be read"),
    }
}

impl Simple for Grants {
    const METHODS: &'static [&'static str] = &["/etcdserverpb.Lease/LeaseGrant"];

    fn make(&mut self, message: &mut Vec<u8>) -> Request {
        message.clear();
        put_nonzero(message, 1, TTL);
        Request::default()
    }

    fn check(&mut self, _: Request, message: &[u8]) -> Result<(), &'static str> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).push(lease(message)?);
        Ok(())
    }
}

/// Renews leases in turn.
struct Renewals {
    ids: Vec<u64>,
    next: usize,
}

impl Simple for Renewals {
    const METHODS: &'static [&'static str] = &["/etcdserverpb.Lease/LeaseKeepAlive"];

    fn make(&mut self, message: &mut Vec<u8>) -> Request {
        message.clear();
        let number = self.ids[self.next % self.ids.len()];
        self.next = self.next.wrapping_add(1);
        put_nonzero(message, 1, number);
        Request { number, ..Request::default() }
    }

    fn check(&mut self, request: Request, message: &[u8]) -> Result<(), &'static str> {
        match lease(message)? {
            id if id == request.number => Ok(()),
            _ => Err("the answer to another lease"),
        }
    }
}
