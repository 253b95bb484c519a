//! `lock`: holds a lock until it is stopped, or while a program runs.

use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome, code};
use crate::flags::int;
use crate::print::go;
use crate::raw;
use api::etcdserverpb::{LeaseRevokeRequest, RangeRequest};
use client::Client;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(crate) const COMMAND: Command = command("lock", "<name> [program argument ...]", "Holds a lock", run).with(&[int(
    "ttl",
    "10",
    "seconds after which it ends without this client",
)]);

/// The lease's time where none is given that could be one.
const TTL_DEFAULT: Duration = Duration::from_secs(60);
/// What we end with when a signal has ended the program.
const KILLED: i32 = 255;

fn run(context: &Context) -> Outcome {
    let Some((name, program)) = context.args().split_first() else {
        return Err(Failure::args("lock takes a lock name argument and an optional command to execute"));
    };
    let printer = context.printer()?;
    // As with etcd's tool, what is no time means its default.
    let ttl = Some(context.parsed.int("ttl"))
        .filter(|ttl| *ttl > 0)
        .map_or(TTL_DEFAULT, |ttl| Duration::from_secs(ttl.unsigned_abs()));
    let client = context.patient_client_of_all()?;
    let mut stopped = std::pin::pin!(stopped());
    let held: Outcome<Option<_>> = context.wait(async {
        let session = client.session(ttl).await?;
        let lease = session.lease();
        tokio::select! {
            lock = session.lock(raw::bytes(name)) => Ok(Some(lock?)),
            () = &mut stopped => context.briefly(leave(&client, lease)).await.map(|()| None),
        }
    });
    let Some(mut lock) = held? else {
        return Err(Failure::new(code::INTERRUPTED, "lock interrupted"));
    };
    let ended = context.wait(async {
        if !program.is_empty() {
            let key = OsString::from_vec(lock.key().to_vec());
            let revision = lock.seen_revision().to_string().into();
            return run_program(program, &[("ETCD_LOCK_KEY", key), ("ETCD_LOCK_REV", revision)]).await;
        }
        let key = lock.key().clone();
        let held = async {
            let found = client.range(RangeRequest { key, ..Default::default() }).await?;
            if found.kvs.is_empty() {
                return Err(Failure::new(code::ERROR, "lock lost on init"));
            }
            printer.range(&found)?;
            std::future::pending().await
        };
        tokio::select! {
            // A cluster that goes away now leaves the question open for as long as it is away.
            ended = held => ended,
            () = lock.lost() => Err(Failure::new(code::ERROR, "session expired")),
            () = &mut stopped => Ok(()),
        }
    });
    let freed = context.wait(context.briefly(async { lock.unlock().await?.close().await }));
    ended.and(freed)
}

/// Gives up a place in a line: with its lease goes the key that others wait for.
pub(super) async fn leave(client: &Client, lease: i64) -> Result<(), client::Error> {
    client.lease_revoke(LeaseRevokeRequest { id: lease }).await.map(drop)
}

/// Waits for Ctrl-C or SIGTERM. One such wait must go on as long as the command: what comes between two of them is lost.
pub(super) async fn stopped() {
    Signals::new().next().await;
}

/// Signals closer together come from one hand: terminals and `timeout` may send both to the program and to its group.
const TOGETHER: Duration = Duration::from_millis(300);

/// Ctrl-C and SIGTERM, from when this is made on.
pub(crate) struct Signals {
    /// Without it, what was the system's way stays so.
    streams: Option<(Signal, Signal)>,
    last: Option<Instant>,
}

impl Signals {
    pub(crate) fn new() -> Signals {
        let streams = signal(SignalKind::interrupt()).and_then(|one| Ok((one, signal(SignalKind::terminate())?))).ok();
        Signals { streams, last: None }
    }

    /// Waits for the next one that does not come with the one before.
    pub(crate) async fn next(&mut self) {
        let Some((interrupt, terminate)) = &mut self.streams else { return std::future::pending().await };
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if self.last.is_none_or(|last| last.elapsed() >= TOGETHER) {
                self.last = Some(Instant::now());
                return;
            }
        }
    }
}

/// Runs a program to its end, without our input. Its exit code is ours. Connections, and what keeps leases alive, go on meanwhile.
pub(super) async fn run_program(program: &[String], environment: &[(&str, OsString)]) -> Outcome {
    let mut words = program.iter().map(|word| OsString::from_vec(raw::bytes(word).to_vec()));
    let Some(name) = words.next() else { return Ok(()) };
    let mut command = std::process::Command::new(&name);
    command.args(words).stdin(Stdio::null());
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    let ended = tokio::task::spawn_blocking(move || command.status()).await.map_err(std::io::Error::from).flatten();
    let status = ended.map_err(|error| Failure::new(code::ERROR, not_run(&name, &error)))?;
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(Failure::new(code, format!("exit status {code}"))),
        (None, Some(number)) => {
            let dumped = if status.core_dumped() { " (core dumped)" } else { "" };
            Err(Failure::new(KILLED, format!("signal: {}{dumped}", signal_name(number))))
        }
        (None, None) => Err(Failure::new(code::ERROR, status.to_string())),
    }
}

/// Why a program could not be started, as etcd's tool says it.
fn not_run(name: &OsStr, error: &std::io::Error) -> String {
    let is_path = name.as_bytes().contains(&b'/');
    match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied if !is_path => {
            format!("exec: {}: executable file not found in $PATH", go::quote(name.as_bytes()))
        }
        _ => format!("fork/exec {}: {}", name.to_string_lossy(), go::io(error)),
    }
}

/// The signals that end programs, as etcd's tool names them.
fn signal_name(number: i32) -> String {
    let name = match number {
        1 => "hangup",
        2 => "interrupt",
        3 => "quit",
        4 => "illegal instruction",
        5 => "trace/breakpoint trap",
        6 => "aborted",
        7 => "bus error",
        8 => "floating point exception",
        9 => "killed",
        10 => "user defined signal 1",
        11 => "segmentation fault",
        12 => "user defined signal 2",
        13 => "broken pipe",
        14 => "alarm clock",
        15 => "terminated",
        _ => return format!("signal {number}"),
    };
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn signals_that_come_together_are_one() {
        let mut signals = Signals::new();
        // SAFETY: the signal is taken by the handler that was set just now.
        let raise = || assert_eq!(unsafe { libc::raise(libc::SIGTERM) }, 0);
        raise();
        signals.next().await;
        raise();
        assert!(tokio::time::timeout(TOGETHER / 2, signals.next()).await.is_err());
        tokio::time::sleep(TOGETHER).await;
        raise();
        signals.next().await;
    }
}
