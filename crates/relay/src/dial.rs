//! Finds the member for a connection.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use telemetry::logging::{self, Value};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::balancer::Balancer;
use crate::endpoints::Target;
use crate::limits::{is_shortage, turned_away};
use crate::names::Name;

/// How long an address may take to accept a connection, and how long a lookup may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// After this long without an answer the next address of a name is tried beside the ones before.
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

/// Makes connections to members.
#[derive(Debug)]
pub(crate) struct Dialer {
    pub(crate) balancer: Balancer,
    /// A name for each member.
    names: Vec<Name>,
    retry_delay: Duration,
}

impl Dialer {
    /// One for these members; one that does not answer is left out for `retry_delay`.
    pub(crate) fn new(targets: Vec<Target>, retry_delay: Duration) -> Dialer {
        let names = targets.iter().map(Name::new).collect();
        Dialer { balancer: Balancer::new(targets), names, retry_delay }
    }

    /// A connection to the next member that answers; those that do not are left out on the way. None if no member answers, or this host
    /// lacks what a connection needs: no member is to blame for that.
    pub(crate) async fn dial(&self) -> Option<TcpStream> {
        let mut shortage = None;
        // Members can come back and go again meanwhile, so that there is always one to pick.
        for _ in 0..self.balancer.len() {
            let Some(place) = self.balancer.pick(random()) else { break };
            let target = self.balancer.target(place)?;
            match self.connect(place).await {
                Ok(socket) => return Some(socket),
                // Ports are used up for each address by itself: another member may still have some.
                Err(error) if is_shortage(&error) => shortage = Some(error),
                // Connections that were being made at the same time say nothing of it again.
                Err(error) if self.balancer.leave_out(place) => {
                    self.say(logging::warn, "deactivated endpoint", target, &error);
                }
                Err(_) => {}
            }
        }
        if let Some(error) = shortage {
            turned_away(&error);
            return None;
        }
        let place = self.balancer.last_resort()?;
        let socket = self.connect(place).await.ok()?;
        self.answered(place);
        Some(socket)
    }

    /// Asks a member that is left out whether it answers again.
    pub(crate) async fn probe(&self, place: usize) {
        let Some(target) = self.balancer.target(place) else { return };
        match self.connect(place).await {
            Ok(_) => self.answered(place),
            Err(error) => {
                let text = "failed to activate endpoint (stay inactive for another interval)";
                self.say(logging::warn, text, target, &error);
            }
        }
    }

    /// How long a member is left out.
    pub(crate) fn retry_delay(&self) -> Duration {
        self.retry_delay
    }

    fn answered(&self, place: usize) {
        if let Some(target) = self.balancer.target(place)
            && self.balancer.take_in(place)
        {
            logging::info("activated", &[("address", Value::Shown(target))]);
        }
    }

    fn say(&self, line: fn(&str, &[(&str, Value<'_>)]), text: &str, target: &Target, error: &io::Error) {
        let interval = flags::duration_text(self.retry_delay);
        let fields =
            [("address", Value::Shown(target)), ("interval", (&interval).into()), ("error", Value::Shown(error))];
        line(text, &fields);
    }

    async fn connect(&self, place: usize) -> io::Result<TcpStream> {
        connect(self.names.get(place).ok_or(io::ErrorKind::NotFound)?).await
    }
}

/// A connection to the first address of a name that answers.
async fn connect(name: &Name) -> io::Result<TcpStream> {
    let mut addresses = in_time("the name is not found", name.addresses()).await?.into_iter();
    // Dropped with the attempts that are still on their way.
    let mut attempts = JoinSet::new();
    let mut failed: Option<io::Error> = None;
    loop {
        if let Some(address) = addresses.next() {
            attempts.spawn(attempt(address));
        }
        match timeout(NEXT_ADDRESS, attempts.join_next()).await {
            Ok(Some(Ok(Ok(socket)))) => return Ok(socket),
            // Only where each address fails for a shortage that is what is wrong: an address may be of a kind that this host has none of.
            Ok(Some(Ok(Err(error)))) => match &failed {
                Some(before) if !is_shortage(before) => {}
                _ => failed = Some(error),
            },
            Ok(Some(Err(panicked))) => return Err(io::Error::other(panicked)),
            Ok(None) => return Err(failed.unwrap_or_else(|| io::Error::other("the name has no address"))),
            Err(_) => {}
        }
    }
}

async fn attempt(address: SocketAddr) -> io::Result<TcpStream> {
    in_time("no answer", TcpStream::connect(address)).await
}

async fn in_time<T>(otherwise: &str, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match timeout(CONNECT_TIMEOUT, work).await {
        Ok(done) => done,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("{otherwise} within {CONNECT_TIMEOUT:?}"))),
    }
}

/// A number by chance.
fn random() -> u32 {
    // Each state has keys of its own; the low half of a hash is as good as any.
    (RandomState::new().hash_one(0_u8) & u64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests;
