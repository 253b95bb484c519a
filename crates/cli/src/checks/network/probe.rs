//! The measurement of one member after the other.

use super::Target;
use crate::checks::times::Times;
use crate::command::Context;
use crate::failure::{Failure, Outcome, code};
use crate::globals;
use crate::progress::Bar;
use api::etcdserverpb::StatusRequest;
use client::{Client, Endpoint, Pages};
use std::time::{Duration, Instant, SystemTime};
use tokio::net::{TcpStream, UnixStream, lookup_host};

/// Connections that are made; members write a line for each that brings nothing.
const CONNECTS: usize = 5;
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

/// How a member's clock is to ours.
#[derive(Clone, Copy, Debug)]
pub(in crate::checks) struct Clock {
    pub(in crate::checks) ahead_seconds: f64,
    /// Half a round trip: so far it may be wrong.
    pub(in crate::checks) error_seconds: f64,
}

/// Asks each of them so many times.
pub(in crate::checks) fn measure(context: &Context, targets: Vec<Target>, count: usize) -> Outcome<Vec<Trip>> {
    let total = (targets.len() * count) as u64;
    let mut bar = Bar::new();
    let mut done = 0;
    let mut trips = Vec::with_capacity(targets.len());
    for target in targets {
        let text = format!("asking {target}");
        let mut step = || {
            done += 1;
            bar.draw(done, total, &text);
        };
        let outcome = ask(context, &target, count, &mut step);
        trips.push(Trip { target, outcome });
    }
    bar.clear();
    Ok(trips)
}

fn ask(context: &Context, target: &Target, count: usize, step: &mut dyn FnMut()) -> Outcome<Reached> {
    let Some(peer) = &target.peer else { return Err(Failure::new(code::ERROR, "it has no peer URL")) };
    let limit = context.parsed.duration("dial-timeout");
    let connects = context.wait(async { connects(peer, limit).await })?;
    let of_peer = globals::client(&context.parsed, vec![peer.clone()], Some(context.patience()))?;
    let (requests, clock) = match &target.client {
        Some(endpoint) => {
            let client = context.client_of(endpoint)?;
            let requests = context.wait(statuses(&client, endpoint, count, step))?;
            // Members with TLS may let nobody in there but members.
            (requests, context.wait(async { clock(&mut of_peer.pages(peer).await.ok()?).await }))
        }
        None if target.name.is_empty() => context.wait(async {
            let mut pages = of_peer.pages(peer).await.map_err(plain)?;
            let requests = versions(&mut pages, count, step).await?;
            Ok::<_, Failure>((requests, clock(&mut pages).await))
        })?,
        None => return Err(Failure::new(code::ERROR, "it has not started: it has no client URL yet")),
    };
    Ok(Reached { requests, connects, clock })
}

/// Connects, and hangs up. Names are looked up before.
async fn connects(peer: &Endpoint, limit: Duration) -> Outcome<Times> {
    let failed = |error: std::io::Error| Failure::new(code::ERROR, format!("cannot connect: {error}"));
    let path = peer.address().strip_prefix("unix:");
    let address = match path {
        Some(_) => None,
        None => lookup_host(peer.address()).await.map_err(failed)?.next(),
    };
    let mut nanos = Vec::with_capacity(CONNECTS);
    for _ in 0..CONNECTS {
        let started = Instant::now();
        let connecting = async {
            match (address, path) {
                (Some(address), _) => TcpStream::connect(address).await.map(drop),
                (None, Some(path)) => UnixStream::connect(path).await.map(drop),
                (None, None) => Err(std::io::Error::other("the name has no address")),
            }
        };
        let connected = tokio::time::timeout(limit, connecting).await;
        let late = |_| Failure::new(code::ERROR, format!("cannot connect: no answer within {limit:?}"));
        connected.map_err(late)?.map_err(failed)?;
        nanos.push(since(started));
    }
    Ok(Times::new(nanos))
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

/// How the member's clock is to ours, if it tells.
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
