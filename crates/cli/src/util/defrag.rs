//! `defrag`: there is nothing to do.

use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome, code};
use crate::flags::text;
use crate::raw;

pub(crate) const COMMAND: Command = command("defrag", "--data-dir <dir>", "Has nothing to do: says so", run)
    .with(&[text("data-dir", "", "directory of a member's data")]);

fn run(context: &Context) -> Outcome {
    let dir = super::data_dir(&context.parsed)?;
    let shown = raw::word(dir.as_os_str());
    let failed = |why: String| Failure::new(code::ERROR, format!("Failed to defragment etcd data[{shown}] ({why})"));
    let (own, others) = (dir.join("member").join("store"), dir.join("member").join("snap"));
    if !own.is_dir() {
        // Nothing of ours: it is looked for where etcd's tool looks.
        super::exists(&others.join("db")).map_err(|failure| failed(failure.text))?;
    }
    if others.is_dir() {
        return Err(failed(
            "these are the files of etcd: have its own tool do it, or take them over with `migrate`".into(),
        ));
    }
    // Scripts wait for the words of etcd's tool.
    let text = format!(
        "finished defragmenting directory {shown}: nothing to do, members give space back while they run
"
    );
    flags::say_bytes(&raw::bytes(&text));
    Ok(())
}
