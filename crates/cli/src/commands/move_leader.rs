//! `move-leader`.

use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome};
use crate::flags::{PARSE_UINT, hex};
use crate::globals;
use crate::print;
use api::etcdserverpb::{MoveLeaderRequest, StatusRequest};

pub(crate) const COMMAND: Command =
    command("move-leader", "<member, in hexadecimal>", "Hands leadership to another member", run);

fn run(context: &Context) -> Outcome {
    let [target] = context.args() else { return Err(Failure::args("move-leader command needs 1 argument")) };
    let target: u64 = hex(target, PARSE_UINT).map_err(Failure::args)?;
    // Only the leader can hand leadership over: it has to be among the endpoints.
    for endpoint in globals::endpoints(&context.parsed)? {
        let client = context.client_of(&endpoint)?;
        let status = context.call(client.status(&endpoint, StatusRequest {}))?;
        if status.header.as_ref().is_some_and(|header| header.member_id == status.leader) {
            let from = status.leader;
            context.call(client.move_leader(MoveLeaderRequest { target_id: target }))?;
            return print::out(format!("Leadership transferred from {from:x} to {target:x}\n").as_bytes());
        }
    }
    Err(Failure::args(format!("no leader endpoint given at {:?}", context.parsed.text("endpoints"))))
}
