//! `lock`: holds a lock until it is stopped, or while a program runs.

use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome, code};
use crate::flags::int;
use crate::print;
use api::etcdserverpb::LeaseRevokeRequest;
use client::Client;
use std::process::Stdio;
use std::time::Duration;

pub(crate) const COMMAND: Command = command("lock", "<name> [program argument ...]", "Holds a lock", run).with(&[int(
    "ttl",
    "10",
    "seconds after which it ends without this client",
)]);

fn run(context: &Context) -> Outcome {
    let Some((name, program)) = context.args().split_first() else {
        return Err(Failure::args("lock takes a lock name argument and an optional command to execute"));
    };
    let ttl = Duration::from_secs(context.parsed.int("ttl").max(1).unsigned_abs());
    let client = context.client()?;
    let mut stopped = std::pin::pin!(stopped());
    let held = context.wait(async {
        let session = client.session(ttl).await?;
        let lease = session.lease();
        tokio::select! {
            lock = session.lock(name) => Ok(Some(lock?)),
            () = &mut stopped => leave(&client, lease).await.map(|()| None),
        }
    });
    let Some(mut lock) = held.map_err(|error: client::Error| Failure::from(error))? else {
        return Err(Failure::new(code::INTERRUPTED, "lock interrupted"));
    };
    let ended = if program.is_empty() {
        print::out(&[&lock.key()[..], b"\n"].concat())?;
        context.wait(async {
            tokio::select! {
                () = lock.lost() => Err(Failure::new(code::ERROR, "session expired")),
                () = &mut stopped => Ok(()),
            }
        })
    } else {
        let key = String::from_utf8_lossy(lock.key()).into_owned();
        let environment = [("ETCD_LOCK_KEY", key), ("ETCD_LOCK_REV", lock.revision().to_string())];
        context.wait(run_program(program, &environment))
    };
    let freed = context.wait(async { lock.unlock().await?.close().await });
    ended.and(freed.map_err(Failure::from))
}

/// Gives up a place in a line: with its lease goes the key that others wait for.
pub(super) async fn leave(client: &Client, lease: i64) -> Result<(), client::Error> {
    client.lease_revoke(LeaseRevokeRequest { id: lease }).await.map(drop)
}

/// Waits for Ctrl-C or SIGTERM. One such wait must go on as long as the command: what comes between two of them is lost.
pub(super) async fn stopped() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// Runs a program to its end, with the terminal that we have. Its exit code is ours. Connections, and what keeps leases alive, go on
/// meanwhile.
pub(super) async fn run_program(program: &[String], environment: &[(&str, String)]) -> Outcome {
    let Some((name, arguments)) = program.split_first() else { return Ok(()) };
    let mut command = std::process::Command::new(name);
    command.args(arguments).stdin(Stdio::inherit());
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    let ended = tokio::task::spawn_blocking(move || command.status()).await.map_err(std::io::Error::from).flatten();
    let status = ended.map_err(|error| Failure::new(code::ERROR, format!("exec: {name:?}: {error}")))?;
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => Err(Failure::new(code, "")),
        None => Err(Failure::new(code::ERROR, format!("{status}"))),
    }
}
