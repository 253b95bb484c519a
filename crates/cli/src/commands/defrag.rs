//! `defrag`.

use super::endpoint;
use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome, code};
use crate::flags::switch;
use crate::print::{self, go};
use api::etcdserverpb::DefragmentRequest;
use std::time::Instant;

pub(crate) const COMMAND: Command = command("defrag", "", "Has members give back unused space", run)
    .with(&[switch("cluster", "all members of the cluster, not only those of --endpoints")]);

fn run(context: &Context) -> Outcome {
    context.printer()?;
    let mut failures = 0;
    for endpoint in endpoint::targets(context)? {
        let client = context.client_of(&endpoint)?;
        let started = Instant::now();
        let asked = context.call(client.defragment(&endpoint, DefragmentRequest {}));
        let took = go::duration(started.elapsed());
        match asked {
            Ok(_) => {
                let text = format!("Finished defragmenting etcd member[{endpoint}]. took {took}\n");
                print::out(text.as_bytes())?;
            }
            Err(failure) => {
                let text = failure.text;
                flags::say!("Failed to defragment etcd member[{endpoint}]. took {took}. ({text})");
                failures += 1;
            }
        }
    }
    if failures == 0 { Ok(()) } else { Err(Failure::new(code::ERROR, "")) }
}
