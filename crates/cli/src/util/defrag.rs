//! `defrag`: there is nothing to do.

use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome, code};
use crate::flags::text;

pub(crate) const COMMAND: Command = command("defrag", "--data-dir <dir>", "Has nothing to do: says so", run)
    .with(&[text("data-dir", "", "directory of a member's data")]);

fn run(context: &Context) -> Outcome {
    let dir = super::data_dir(&context.parsed)?;
    let failed =
        |why: String| Failure::new(code::ERROR, format!("Failed to defragment etcd data[{}] ({why})", dir.display()));
    super::exists(dir).map_err(|failure| failed(failure.text))?;
    if dir.join("member").join("snap").is_dir() {
        return Err(failed(
            "these are the files of etcd: have its own tool do it, or take them over with `migrate`".into(),
        ));
    }
    // Scripts wait for the words of etcd's tool.
    eprintln!(
        "finished defragmenting directory {}: nothing to do, members give space back while they run",
        dir.display()
    );
    Ok(())
}
