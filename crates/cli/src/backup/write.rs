//! `cairn backup --to`.

use super::members::Members;
use crate::command::Context;
use crate::failure::{Failure, Outcome};
use crate::raw;
use crate::signals::Signals;
use backup::{Follower, Options};
use std::time::Duration;

/// Pieces that are shipped more often cost more than they are worth.
const EVERY_MIN: Duration = Duration::from_millis(100);

pub(super) fn run(context: &Context) -> Outcome {
    let parsed = &context.parsed;
    // What is written has values in it, and what users log in with.
    // SAFETY: no pointers are passed.
    unsafe { libc::umask(0o077) };
    let vault = super::vault(context, "to", true)?;
    let scratch = match parsed.text("scratch-dir") {
        "" => std::env::temp_dir(),
        dir => raw::path(dir),
    };
    if !scratch.is_dir() {
        return Err(Failure::args(format!("--scratch-dir `{}` is no directory", scratch.display())));
    }
    let options = Options {
        every: parsed.duration("every").max(EVERY_MIN),
        base_every: parsed.duration("base-every"),
        keep: Some(parsed.duration("keep")).filter(|keep| !keep.is_zero()),
        is_once: parsed.switch("once"),
        scratch,
    };
    let members = Members::of(context)?;
    let mut signals = {
        let _guard = context.enter();
        Signals::new()?
    };
    let tell = |text: &str| flags::say!("{text}");
    context.wait(async {
        let begun = tokio::select! {
            begun = Follower::begin(members, vault, options, tell) => begun?,
            () = signals.any() => return Ok(()),
        };
        let mut follower = begun;
        follower.run(signals.any()).await?;
        Ok(())
    })
}
