//! `elect`: takes part in an election, or observes it.

use super::lock::{leave, stopped};
use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome, code};
use crate::flags::{Flag, switch};
use crate::raw;
use std::time::Duration;

pub(crate) const COMMAND: Command = command("elect", "<election name> [value]", "Takes part in an election", run)
    .with(&[Flag { short: Some('l'), ..switch("listen", "only tell who leads") }]);

const ARGUMENTS: &str = "elect takes one election name argument and an optional proposal argument";

/// How long a leader whose client is gone still leads.
const TTL: Duration = Duration::from_secs(60);

fn run(context: &Context) -> Outcome {
    if !matches!(context.args().len(), 1..=2) {
        return Err(Failure::args(ARGUMENTS));
    }
    let printer = context.printer()?;
    let client = context.patient_client_of_all()?;
    let mut stopped = std::pin::pin!(stopped());
    if context.parsed.switch("listen") {
        let [name] = context.args() else { return Err(Failure::args("proposal given but -l is set")) };
        let mut observer = client.election(raw::bytes(name)).observe();
        return context.wait(async {
            loop {
                tokio::select! {
                    leader = observer.next() => printer.range(&leader?)?,
                    () = &mut stopped => return Ok(()),
                }
            }
        });
    }
    let [name, value] = context.args() else { return Err(Failure::args("no proposal argument but -l not set")) };
    let election = client.election(raw::bytes(name));
    let won: Outcome<Option<_>> = context.wait(async {
        let session = client.session(TTL).await?;
        let lease = session.lease();
        tokio::select! {
            leadership = election.campaign(session, raw::bytes(value)) => Ok(Some(leadership?)),
            () = &mut stopped => context.briefly(leave(&client, lease)).await.map(|()| None),
        }
    });
    let Some(mut leadership) = won? else {
        return Err(Failure::new(code::INTERRUPTED, "elect interrupted"));
    };
    let ended = context.wait(async {
        let leading = async {
            printer.range(&election.leader().await?)?;
            std::future::pending().await
        };
        tokio::select! {
            // A cluster that goes away now leaves the question open for as long as it is away.
            ended = leading => ended,
            () = leadership.lost() => Err(Failure::new(code::ERROR, "elect: session expired")),
            () = &mut stopped => Ok(()),
        }
    });
    let freed = context.wait(context.briefly(async { leadership.resign().await?.close().await }));
    ended.and(freed)
}
