//! `version`.

use crate::command::{Command, Context, command};
use crate::failure::Outcome;
use crate::print;

pub(crate) const COMMAND: Command = command("version", "", "Prints the version", run);

fn run(_context: &Context) -> Outcome {
    let version = api::version::ETCD;
    let api = version.rsplit_once('.').map_or(version, |(api, _)| api);
    print::out(format!("etcdutl version: {version}\nAPI version: {api}\n").as_bytes())
}
