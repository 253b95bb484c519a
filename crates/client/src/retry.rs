//! Whether a failed call may be repeated, and after which pause.
//!
//! The rules are those of etcd's clients: reads, and calls that may take effect twice without harm, are repeated whenever a member was
//! unavailable; a write only if it has certainly not left this client.

use std::time::Duration;

use api::Code;
use rpc::Status;

/// How often a call is made at most.
pub(crate) const ATTEMPTS_MAX: u32 = 100;
/// The pause after all members have been tried.
const PAUSE: Duration = Duration::from_millis(50);

/// Whether a method may be called again when the fate of the first call is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It reads, or does the same when done twice.
    Always,
    /// It must not be done twice.
    Unsent,
}

/// What became of a call.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    /// It has not left this client.
    pub(crate) is_unsent: bool,
}

impl Repeat {
    pub(crate) fn allows(self, failure: &Failure) -> bool {
        failure.status.code == Code::Unavailable && (failure.is_unsent || self == Repeat::Always)
    }
}

/// How long to wait before attempt number `attempt` (the first is 0), given the number of endpoints: a pause after each round.
pub(crate) fn pause(attempt: u32, endpoints: usize) -> Option<Duration> {
    let endpoints = u32::try_from(endpoints.max(1)).unwrap_or(u32::MAX);
    (attempt > 0 && attempt.is_multiple_of(endpoints)).then_some(PAUSE)
}

/// Whether the member did not know the token: another one may help.
pub fn wants_another_token(status: &Status) -> bool {
    let texts = [api::Error::InvalidAuthToken, api::Error::AuthOldRevision, api::Error::UserEmpty];
    texts.iter().any(|error| status.message == error.message())
}

/// Whether a learner was asked for what only voters do.
pub fn is_from_learner(status: &Status) -> bool {
    let error = api::Error::NotSupportedForLearner;
    status.code == error.code() && status.message == error.message()
}

/// What begins the message of a call that was passed on to nobody.
const UNREACHED: &str = "no member can be reached";

/// How a call ends that was passed on to nobody, because of `why` if that is known.
pub(crate) fn unreached(why: Option<&str>) -> Status {
    let text = why.map_or(UNREACHED.to_string(), |why| format!("{UNREACHED}: {why}"));
    Status::new(Code::Unavailable, text)
}

/// Whether a call was passed on to nobody, because no member could be reached.
pub fn is_unreached(status: &Status) -> bool {
    status.code == Code::Unavailable && status.message.starts_with(UNREACHED)
}

/// Whether a stream that ended like this can be taken up on another member.
pub fn is_passing(status: &Status) -> bool {
    matches!(status.code, Code::Unavailable | Code::Internal | Code::Ok)
        || (status.code == Code::Unknown && status.message == api::Error::NotPrimaryLessor.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: Code, is_unsent: bool) -> Failure {
        Failure { status: Status::new(code, "a reason"), is_unsent }
    }

    #[test]
    fn a_write_is_not_done_twice() {
        assert!(Repeat::Unsent.allows(&failure(Code::Unavailable, true)));
        assert!(!Repeat::Unsent.allows(&failure(Code::Unavailable, false)));
        assert!(Repeat::Always.allows(&failure(Code::Unavailable, false)));
        for code in [Code::InvalidArgument, Code::DeadlineExceeded, Code::ResourceExhausted, Code::Unknown] {
            assert!(!Repeat::Always.allows(&failure(code, true)), "{code:?}");
        }
    }

    #[test]
    fn members_are_tried_in_rounds() {
        let paused = |endpoints| (0..7).map(|attempt| pause(attempt, endpoints).is_some()).collect::<Vec<_>>();
        assert_eq!(paused(3), [false, false, false, true, false, false, true]);
        assert_eq!(paused(1), [false, true, true, true, true, true, true]);
    }
}
