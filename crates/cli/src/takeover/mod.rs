//! `cairn takeover`: moves a running cluster of etcd to Cairn, and back, one member after the other.
//!
//! Nothing is remembered between two runs: [`plan`] decides each step from what the members say ([`survey`], [`view`]), so a move that
//! was interrupted goes on where it stopped. [`drive`] does the steps: changes through the API ([`changes`]), and on the members' hosts
//! the operator's commands ([`hooks`]) or the operator, who is shown the lines ([`host`], [`forms`]). Before each step [`checks`] must
//! pass, after it all members have the same history ([`compare`]).

mod advice;
mod changes;
mod checks;
mod compare;
mod drive;
mod forms;
mod hooks;
mod host;
mod plan;
mod screen;
mod settings;
mod survey;
mod view;

use crate::command::{Command, Context, command};
use crate::commands::lock::Signals;
use crate::failure::{Failure, Outcome, code};
use crate::print::Format;
use drive::Drive;
use screen::Screen;
use settings::Settings;
use survey::Cluster;

/// Every command.
pub(crate) const COMMANDS: &[Command] =
    &[command("takeover", "", "Moves a running cluster from etcd to Cairn, or back", run)
        .with(settings::FLAGS)
        .explained(NOTES)];

const NOTES: &str = "\
It checks the cluster, then moves one member after the other, the leader last, and compares all of them (HashKV) after each.
What the API can do, it does; what must be done on a host, it prints and waits for, or has --stop-command and --start-command do.
It stops at the first failure or difference. Started again, it goes on where it stopped: commands may run twice for a member, even
at the same time (let them take a lock).

Ways:
  in-place       the same members, data and addresses: stop etcd, start Cairn with --adopt-etcd-data and the flags that etcd
                 had (--back: cairn util export, start etcd). One restart of each member; while one restarts, the cluster
                 tolerates one failure less, as with any restart.
  empty-disk     the same addresses, without the data: remove, add as a learner, promote. WARNING: from the removal of a member
                 to its promotion a cluster of three tolerates no further failure.
  new-addresses  new members, named by --new-members: add as a learner, promote, then remove an old one. The cluster never
                 tolerates less than before.

Commands are run by sh with CAIRN_MEMBER_NAME, CAIRN_MEMBER_ID, CAIRN_PEER_URLS, CAIRN_CLIENT_URLS, CAIRN_INITIAL_CLUSTER,
CAIRN_INITIAL_CLUSTER_STATE, CAIRN_TAKEOVER_TO (cairn or etcd) and CAIRN_TAKEOVER_WAY. In place the start command converts, too;
with --back it exports only if the new directory has no member/. Lines for --back in place need --data-dir.

Exit codes: 0 all moved (--dry-run: could be), 1 a check or a step failed, 2 the cluster cannot be reached, 3 an answer makes no
sense, 5 interrupted, 7 members differ, 8 a wait was too long, 128 wrong flags.
";

fn run(context: &Context) -> Outcome {
    if Format::parse(context.parsed.text("write-out"))? != Format::Simple {
        return Err(Failure::new(code::BAD_FEATURE, "takeover has no other form of output than simple"));
    }
    let settings = Settings::read(&context.parsed)?;
    let cluster = Cluster::new(context)?;
    let screen = Screen::new(settings.timeout);
    let mut drive = Drive::new(&cluster, &screen, settings);
    context.wait(async {
        let mut signals = Signals::new();
        tokio::select! {
            outcome = drive.run() => outcome,
            () = signals.next() => {
                Err(Failure::new(code::INTERRUPTED, "interrupted: the same command, started again, goes on from here"))
            }
        }
    })
}
