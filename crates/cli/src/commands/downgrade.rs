//! `downgrade`.

use crate::command::{Command, Context, command, group};
use crate::failure::{Failure, Outcome};
use crate::raw;
use api::etcdserverpb::DowngradeRequest;
use api::etcdserverpb::downgrade_request::DowngradeAction;

pub(crate) const COMMAND: Command = group(
    "downgrade",
    "Prepares the cluster for an older version",
    &[
        command("validate", "<version>", "Tells whether the cluster could go back to a version", validate),
        command("enable", "<version>", "Begins to go back to a version", enable),
        command("cancel", "", "Stays with the present version after all", cancel),
    ],
);

fn validate(context: &Context) -> Outcome {
    ask(context, DowngradeAction::Validate, version(context)?)
}

fn enable(context: &Context) -> Outcome {
    ask(context, DowngradeAction::Enable, version(context)?)
}

fn cancel(context: &Context) -> Outcome {
    ask(context, DowngradeAction::Cancel, String::new())
}

fn version(context: &Context) -> Outcome<String> {
    match context.args() {
        [] => Err(Failure::args("TARGET_VERSION not provided")),
        [version] if version.is_empty() => Err(Failure::args("target version not provided")),
        [version] => raw::string(version),
        _ => Err(Failure::args("too many arguments")),
    }
}

fn ask(context: &Context, action: DowngradeAction, version: String) -> Outcome {
    let printer = context.printer()?;
    let client = context.client()?;
    let answer = context.call(client.downgrade(DowngradeRequest { action: action as i32, version }))?;
    let simple = || {
        let (what, version) = (action.as_str_name().to_ascii_lowercase(), &answer.version);
        format!("Downgrade {what} success, cluster version {version}\n").into_bytes()
    };
    printer.answer("etcdserverpb.DowngradeResponse", &answer, Some(&simple), None)
}
