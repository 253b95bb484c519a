//! The pools of the budget.

use api::limits;

/// What bytes are claimed for. Each has its part of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pool {
    /// Answers that are built in one piece and are no longer than [`limits::TURN_BYTES_MAX`].
    Short,
    /// All others: places of pairs, text for websockets, lists.
    Long,
    /// Requests that are not whole yet, or that wait.
    Requests,
}

impl Pool {
    pub(crate) const ALL: [Pool; 3] = [Pool::Short, Pool::Long, Pool::Requests];

    /// Its name among the metrics.
    pub fn name(self) -> &'static str {
        match self {
            Pool::Short => "short_answers",
            Pool::Long => "long_answers",
            Pool::Requests => "requests",
        }
    }

    /// Its part of a budget.
    pub(crate) fn part(self, bytes_max: u64) -> u64 {
        match self {
            Pool::Short | Pool::Requests => bytes_max / 4,
            Pool::Long => bytes_max / 2,
        }
    }

    /// The part of a pool that is shared out among clients, so that none has all of it: of short answers and requests the second half.
    /// The first half is granted without looking at the client, which is how most claims find room.
    pub(crate) fn shared(self, bytes_max: u64) -> u64 {
        match self {
            Pool::Short | Pool::Requests => self.part(bytes_max) / 2,
            Pool::Long => self.part(bytes_max),
        }
    }

    /// The pool of an answer that takes `bytes`.
    pub fn of_answer(bytes: u64) -> Pool {
        if bytes <= limits::TURN_BYTES_MAX as u64 { Pool::Short } else { Pool::Long }
    }
}
