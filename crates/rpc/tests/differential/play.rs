//! Scripts on a connection, and beside it on one of `h2`.

use std::sync::Arc;
use std::time::Duration;

use rpc::{Driver, Options};

use crate::echo::Echo;
use crate::judgement::{Judge, Verdict};
use crate::observation::{Observation, Observer};
use crate::oracle::Oracle;
use crate::script;

/// A connection without a limit in time: those are tested elsewhere.
pub fn driver(echo: &Arc<Echo>) -> Driver {
    let options = Options { ping_interval_min: Duration::ZERO, ping_without_stream: true, ..Options::default() };
    Driver::new(echo.clone(), options)
}

/// Plays `script` to both, frame by frame, up to where they may differ. Returns how many of its frames that was.
pub fn compare(script: &[u8]) -> Result<usize, String> {
    let mut driver = driver(&Arc::default());
    let mut oracle = Oracle::new();
    let (mut ours, mut theirs, mut judge) = (Observer::new(), Observer::new(), Judge::new());
    let mut story = String::new();
    let mut followed = 0;
    for frame in script::frames(script) {
        story += &script::describe(frame);
        ours.read(&driver.feed(frame));
        theirs.read(&oracle.feed(frame));
        followed += 1;
        match judge.judge(frame, ours.seen(), theirs.seen()) {
            Verdict::Agree => {}
            Verdict::MayDiffer(_) => break,
            Verdict::Differ(what) => {
                return Err(format!("{what}\n{story}ours {:?}\ntheirs {:?}", ours.seen(), theirs.seen()));
            }
        }
    }
    Ok(followed)
}

/// What is left of a connection.
#[derive(Debug, PartialEq, Eq)]
pub struct Ending {
    pub connection_error: Option<u32>,
    /// What has been seen, if the connection is still there: what goes out before an error depends on when it comes.
    pub seen: Option<Observation>,
    pub streams: usize,
    pub is_closed: bool,
}

/// Plays `script` in pieces of these sizes, then all at once, and has the calls answered that wait.
pub fn in_pieces(script: &[u8], mut sizes: impl Iterator<Item = usize>) -> Ending {
    let echo = Arc::<Echo>::default();
    let (mut driver, mut observer) = (driver(&echo), Observer::new());
    let mut rest = script;
    while !rest.is_empty() {
        let (piece, tail) = rest.split_at(sizes.next().unwrap_or(usize::MAX).clamp(1, rest.len()));
        observer.read(&driver.feed(piece));
        rest = tail;
    }
    echo.answer_later();
    observer.read(&driver.feed(&[]));
    let connection_error = observer.seen().connection_error;
    Ending {
        connection_error,
        seen: connection_error.is_none().then(|| observer.seen().clone()),
        streams: driver.streams(),
        is_closed: driver.is_closed(),
    }
}
