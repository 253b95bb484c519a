//! The measurement of one member after the other.

use super::Target;
use crate::checks::times::Times;
use crate::command::Context;
use crate::failure::{Failure, Outcome, code};
use crate::globals;
use crate::progress::Bar;
use api::etcdserverpb::StatusRequest;
use client::{Client, Endpoint, Pages};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant, SystemTime};
use tokio::net::{TcpStream, UnixStream};

/// Connections that are made; members write a line for each that brings nothing.
const CONNECTS: usize = 5;
/// Time for a connection when `--dial-timeout` is 0.
const DIAL_TIMEOUT: Duration = Duration::from_secs(20);
/// Between two requests, so that a round trip is measured and not a load.
const PAUSE: Duration = Duration::from_millis(2);
/// What a peer answers to anybody, and what it says the time by.
const VERSION: &str = "/version";
const PROBING: &str = "/raft/probing";

/// What was found out about a member.
pub(in crate::checks) struct Trip {
    pub(in crate::checks) target: Target,
    pub(in crate::checks) outcome: Outcome<Reached>,
}

/// A member that answers.
pub(in crate::checks) struct Reached {
    pub(in crate::checks) requests: Times,
    pub(in crate::checks) connects: Times,
    pub(in crate::checks) clock: Option<Clock>,
}

/// The difference of a member's clock to ours.
#[derive(Clone, Copy, Debug)]
pub(in crate::checks) struct Clock {
    pub(in crate::checks) ahead_seconds: f64,
    /// Half a round trip: so far it may be wrong.
    pub(in crate::checks) error_seconds: f64,
}

/// Asks each of them this many times.
pub(in crate::checks) fn measure(context: &Context, targets: Vec<Target>, count: usize) -> Outcome<Vec<Trip>> {
    let total = (targets.len() * count) as u64;
    let mut bar = Bar::new();
    let mut done = 0;
    let mut trips = Vec::with_capacity(targets.len());
    for mut target in targets {
        let text = format!("asking {target}");
        let mut step = || {
            done += 1;
            bar.draw(done, total, &text);
        };
        let outcome = ask(context, &mut target, count, &mut step);
        trips.push(Trip { target, outcome });
    }
    bar.clear();
    Ok(trips)
}

fn ask(context: &Context, target: &mut Target, count: usize, step: &mut dyn FnMut()) -> Outcome<Reached> {
    let limit = match context.parsed.duration("dial-timeout") {
        Duration::ZERO => DIAL_TIMEOUT,
        limit => limit,
    };
    let (place, connects) = first(&target.peers, |peer| context.wait(connects(peer, limit)))
        .unwrap_or_else(|| Err(Failure::new(code::ERROR, "it has no peer URL")))?;
    target.peers.swap(0, place);
    let peer = &target.peers[0];
    let of_peer = globals::client(&context.parsed, vec![peer.clone()], Some(context.patience()))?;
    let asked = first(&target.clients, |endpoint| {
        let client = context.client_of(endpoint)?;
        context.wait(statuses(&client, endpoint, count, step))
    });
    let (requests, clock) = match asked {
        // Members with TLS may accept only members there.
        Some(asked) => (asked?.1, context.wait(async { clock(&mut of_peer.pages(peer).await.ok()?).await })),
        None if target.name.is_empty() => context.wait(async {
            let mut pages = of_peer.pages(peer).await.map_err(plain)?;
            let requests = versions(&mut pages, count, step).await?;
            Ok::<_, Failure>((requests, clock(&mut pages).await))
        })?,
        None => return Err(Failure::new(code::ERROR, "it has not started: it has no client URL yet")),
    };
    Ok(Reached { requests, connects, clock })
}

/// What the first of them brings that brings anything, and which that is; what went wrong with the last, if none does. A member may
/// have URLs that lead to it from elsewhere only. None: there is none.
fn first<A, T>(all: &[A], mut ask: impl FnMut(&A) -> Outcome<T>) -> Option<Outcome<(usize, T)>> {
    let mut found = None;
    for (place, one) in all.iter().enumerate() {
        found = Some(ask(one).map(|brought| (place, brought)));
        if matches!(found, Some(Ok(_))) {
            break;
        }
    }
    found
}

/// Connects, and hangs up. Names are looked up before.
async fn connects(peer: &Endpoint, limit: Duration) -> Outcome<Times> {
    if let Some(path) = peer.address().strip_prefix("unix:") {
        return times(limit, || UnixStream::connect(path)).await;
    }
    connects_to(&look_up(peer.address(), limit).await?, limit).await
}

/// Connects to the first of them that answers: not every address of a name needs to be one that the member listens on.
async fn connects_to(addresses: &[SocketAddr], limit: Duration) -> Outcome<Times> {
    let mut failure = Failure::new(code::ERROR, "cannot connect: the name has no address");
    for address in addresses {
        match times(limit, || TcpStream::connect(address)).await {
            Ok(times) => return Ok(times),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// How long each connection takes.
async fn times<T, F: Future<Output = io::Result<T>>>(limit: Duration, connect: impl Fn() -> F) -> Outcome<Times> {
    let mut nanos = Vec::with_capacity(CONNECTS);
    for _ in 0..CONNECTS {
        let started = Instant::now();
        let connected = tokio::time::timeout(limit, connect()).await;
        let late = |_| Failure::new(code::ERROR, format!("cannot connect: no answer within {limit:?}"));
        connected.map_err(late)?.map_err(|error| failed(&error))?;
        nanos.push(since(started));
    }
    Ok(Times::new(nanos))
}

fn failed(error: &io::Error) -> Failure {
    Failure::new(code::ERROR, format!("cannot connect: {error}"))
}

/// The addresses of `host:port`. A separate thread waits for the name servers, so that the caller need not wait if they do not answer.
async fn look_up(address: &str, limit: Duration) -> Outcome<Vec<SocketAddr>> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let name = address.to_owned();
    std::thread::Builder::new().name("names".into()).spawn(move || {
        // The receiver is gone once the time is over.
        let _ = tell.send(name.to_socket_addrs().map(Iterator::collect));
    })?;
    match tokio::time::timeout(limit, told).await {
        Ok(Ok(found)) => found.map_err(|error| failed(&error)),
        Ok(Err(_)) => Err(Failure::new(code::ERROR, "the look-up of the name broke off")),
        Err(_) => Err(Failure::new(code::ERROR, format!("cannot connect: no address within {limit:?}"))),
    }
}

/// Round trips of the smallest call that members answer.
async fn statuses(client: &Client, endpoint: &Endpoint, count: usize, step: &mut dyn FnMut()) -> Outcome<Times> {
    let mut nanos = Vec::with_capacity(count);
    // The first one connects.
    for place in 0..=count {
        let started = Instant::now();
        client.status(endpoint, StatusRequest {}).await.map_err(plain)?;
        if place > 0 {
            nanos.push(since(started));
            step();
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(Times::new(nanos))
}

async fn versions(pages: &mut Pages, count: usize, step: &mut dyn FnMut()) -> Outcome<Times> {
    let mut nanos = Vec::with_capacity(count);
    for _ in 0..count {
        let started = Instant::now();
        pages.get(VERSION).await.map_err(plain)?;
        nanos.push(since(started));
        step();
        tokio::time::sleep(PAUSE).await;
    }
    Ok(Times::new(nanos))
}

/// The difference of the member's clock to ours, if it reports its time.
async fn clock(pages: &mut Pages) -> Option<Clock> {
    let (asked, started) = (SystemTime::now(), Instant::now());
    let answer = pages.get(PROBING).await.ok()?;
    let half = started.elapsed() / 2;
    let (theirs, ours) = (api::probing::read(answer.as_bytes())?, asked + half);
    let ahead_seconds = match theirs.duration_since(ours) {
        Ok(ahead) => ahead.as_secs_f64(),
        Err(behind) => -behind.duration().as_secs_f64(),
    };
    Some(Clock { ahead_seconds, error_seconds: half.as_secs_f64() })
}

/// The reason alone: codes are for programs.
fn plain(error: client::Error) -> Failure {
    let text = match error {
        client::Error::Status(status) => status.message.to_string(),
        other => other.to_string(),
    };
    Failure::new(code::ERROR, text)
}

fn since(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn every_address_and_every_url_is_tried() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        // Nobody listens at port 1. A port that was free a moment ago may be another test's by now.
        let gone = SocketAddr::from(([127, 0, 0, 1], 1));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let there = listener.local_addr().expect("an address");
        let connect = |addresses: &[SocketAddr]| runtime.block_on(connects_to(addresses, Duration::from_secs(9)));
        assert!(connect(&[gone, there]).is_ok_and(|times| times.len() == CONNECTS));
        assert!(connect(&[gone]).is_err_and(|failure| failure.text.contains("Connection refused")));
        assert!(connect(&[]).is_err_and(|failure| failure.text.contains("has no address")));
        let found = runtime.block_on(look_up(&there.to_string(), Duration::from_secs(9)));
        assert_eq!(found.ok(), Some(vec![there]));

        let good = |wanted: i32| move |one: &i32| if *one == wanted { Ok(*one) } else { Err(Failure::new(*one, "")) };
        assert_eq!(first(&[1, 2, 3], good(2)).and_then(Result::ok), Some((1, 2)));
        assert_eq!(first(&[1, 3], good(2)).and_then(Result::err).map(|failure| failure.code), Some(3));
        assert!(first(&[], good(2)).is_none());
    }
}
