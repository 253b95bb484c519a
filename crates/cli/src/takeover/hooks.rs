//! Running the operator's commands.

use super::host::Host;
use super::screen::Screen;
use crate::failure::{Failure, Outcome, code};
use crate::print::go;
use crate::raw;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Time between two looks at a command that runs.
const STEP: Duration = Duration::from_millis(50);

/// Runs `text` to its end, without our input. If this process is interrupted, it is not ended: a Ctrl-C goes to our process group, and it
/// has one of its own. It may be run again for the same member then, and while it still runs.
pub(super) async fn run(screen: &Screen, what: &str, text: &str, host: &Host) -> Outcome {
    let line = OsString::from_vec(raw::bytes(text).to_vec());
    let mut command = Command::new("sh");
    command.arg("-c").arg(line).stdin(Stdio::null()).process_group(0).envs(host.variables());
    let failed = |why: String| Failure::new(code::ERROR, format!("the {what} command for {}: {why}", host.name));
    let mut child = command.spawn().map_err(|error| failed(go::io(&error)))?;
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(()) } else { Err(failed(told(status))) };
        }
        if started.elapsed() >= screen.timeout() {
            let why = format!(
                "it still runs after {} (--timeout), as process {}",
                go::duration(screen.timeout()),
                child.id()
            );
            return Err(Failure { code: code::LATE, ..failed(why) });
        }
        tokio::time::sleep(STEP).await;
    }
}

fn told(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(number), _) => format!("exit status {number}"),
        (None, Some(number)) => format!("ended by signal {number}"),
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::host::tests::host;
    use super::super::settings::Way;
    use super::super::view::Kind;
    use super::*;

    #[tokio::test]
    async fn commands_know_the_member_and_must_succeed() {
        let (screen, mut host) = (Screen::new(Duration::from_secs(10)), host(Way::InPlace, Kind::Cairn));
        let all = "test \"$CAIRN_MEMBER_NAME $CAIRN_MEMBER_ID $CAIRN_TAKEOVER_TO $CAIRN_TAKEOVER_WAY\" = 'b 2 cairn in-place'";
        assert_eq!(run(&screen, "stop", all, &host).await, Ok(()));
        assert_eq!(run(&screen, "stop", "test -n \"$CAIRN_INITIAL_CLUSTER\"", &host).await, Ok(()));
        // It leads a group of its own, so that no Ctrl-C ends it.
        assert_eq!(run(&screen, "stop", "kill -0 -$$", &host).await, Ok(()));
        let refused = run(&screen, "stop", "exit 3", &host).await.expect_err("it fails");
        assert_eq!((refused.code, refused.text.as_str()), (code::ERROR, "the stop command for b: exit status 3"));
        let killed = run(&screen, "start", "kill -9 $$", &host).await.expect_err("it is killed");
        assert_eq!(killed.text, "the start command for b: ended by signal 9");
        host.name = "a\0b".into();
        assert!(run(&screen, "stop", "true", &host).await.is_err());
    }

    #[tokio::test]
    async fn commands_that_hang_are_reported() {
        let screen = Screen::new(Duration::from_millis(100));
        let late = run(&screen, "start", "sleep 5", &host(Way::InPlace, Kind::Cairn)).await.expect_err("it hangs");
        assert_eq!(late.code, code::LATE);
    }
}
