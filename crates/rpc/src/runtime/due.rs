//! Which connections are due for a turn, and who goes first.
//!
//! Connections whose turns are short go before those whose turns are long, and between two long turns the thread looks at its sockets
//! and its mail. So a put does not wait for the long answers of all the thread's other connections, only for a turn or two of theirs.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::later::later;

/// A connection whose turns take longer than this, on average, has long turns.
const SHORT_TURN_MAX: Duration = Duration::from_micros(100);
/// Long turns are taken for so long before sockets and mail are looked at again.
const LONG_TURNS_TIME: Duration = Duration::from_micros(250);
/// A turn counts for a quarter of the average.
const AVERAGE_SHIFT: u32 = 2;

/// How long the turns of one connection take, in nanoseconds, on average over the last few.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace(u64);

impl Pace {
    /// Notes what a turn took.
    pub(crate) fn note(&mut self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0 = self.0.saturating_sub(self.0 >> AVERAGE_SHIFT).saturating_add(took >> AVERAGE_SHIFT);
    }

    fn is_short(self) -> bool {
        Duration::from_nanos(self.0) <= SHORT_TURN_MAX
    }
}

/// Keys of the connections that are due.
#[derive(Debug, Default)]
pub(crate) struct Due {
    short: VecDeque<usize>,
    long: VecDeque<usize>,
}

/// One pass over those that were due when it began.
#[derive(Debug)]
pub(crate) struct Pass {
    short: usize,
    long: usize,
    began: Instant,
    /// Until when long turns are begun. Known once the short ones are done.
    until: Option<Instant>,
}

impl Due {
    /// Adds a connection, which must not be in it.
    pub(crate) fn add(&mut self, key: usize, pace: Pace) {
        if pace.is_short() { self.short.push_back(key) } else { self.long.push_back(key) }
    }

    /// Takes a connection out that is gone.
    pub(crate) fn remove(&mut self, key: usize) {
        self.short.retain(|due| *due != key);
        self.long.retain(|due| *due != key);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.short.is_empty() && self.long.is_empty()
    }

    /// Begins a pass.
    pub(crate) fn pass(&self, now: Instant) -> Pass {
        Pass { short: self.short.len(), long: self.long.len(), began: now, until: None }
    }

    /// Whose turn is next in this pass, none when it is over. One long turn is always taken, and more while the long ones have had less
    /// time than half of what the short ones took: those who ask little cannot keep the others from their answers.
    pub(crate) fn next(&mut self, pass: &mut Pass, now: Instant) -> Option<usize> {
        if let Some(left) = pass.short.checked_sub(1) {
            pass.short = left;
            return self.short.pop_front();
        }
        let until = match pass.until {
            Some(until) if now >= until => return None,
            Some(until) => until,
            None => later(now, LONG_TURNS_TIME.max(now.saturating_duration_since(pass.began).mul_f64(0.5))),
        };
        pass.until = Some(until);
        pass.long = pass.long.checked_sub(1)?;
        self.long.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_TURN: Duration = Duration::from_micros(200);
    const SHORT_TURN: Duration = Duration::from_micros(10);
    const LONG: Pace = Pace(LONG_TURN.as_nanos() as u64);
    const SHORT: Pace = Pace(SHORT_TURN.as_nanos() as u64);

    /// Runs a pass in which a short turn takes 10 us and a long one 200 us; says whose turns there were and how long it took.
    fn run(due: &mut Due) -> (Vec<usize>, Duration) {
        let began = Instant::now();
        let (mut now, mut pass, mut turns) = (began, due.pass(began), Vec::new());
        while let Some(key) = due.next(&mut pass, now) {
            now += if key < 100 { SHORT_TURN } else { LONG_TURN };
            turns.push(key);
        }
        (turns, now - began)
    }

    #[test]
    fn whoever_asks_little_goes_first() {
        let mut due = Due::default();
        for key in 100..140 {
            due.add(key, LONG);
        }
        due.add(1, SHORT);
        let (turns, took) = run(&mut due);
        assert_eq!(turns, [1, 100, 101]);
        assert!(took < Duration::from_millis(1), "sockets are not looked at for {took:?}");
        due.add(2, SHORT);
        assert_eq!(run(&mut due).0, [2, 102, 103]);
    }

    #[test]
    fn long_turns_get_their_part_of_the_time() {
        let mut due = Due::default();
        (100..200).for_each(|key| due.add(key, LONG));
        // 99 short turns take 990 us: long ones get half of that, and what the last one takes longer.
        (1..100).for_each(|key| due.add(key, SHORT));
        let (turns, _) = run(&mut due);
        assert_eq!((turns.len(), turns.last()), (99 + 3, Some(&102)));
    }

    #[test]
    fn a_turn_that_makes_itself_due_again_waits_for_the_next_pass() {
        let mut due = Due::default();
        due.add(1, SHORT);
        due.add(100, LONG);
        let now = Instant::now();
        let mut pass = due.pass(now);
        let mut turns = Vec::new();
        while let Some(key) = due.next(&mut pass, now) {
            due.add(key, if key < 100 { SHORT } else { LONG });
            turns.push(key);
        }
        assert_eq!(turns, [1, 100]);
        due.remove(1);
        assert!(!due.is_empty());
        due.remove(100);
        assert!(due.is_empty());
    }

    #[test]
    fn a_connection_is_judged_by_its_last_turns() {
        let mut pace = Pace::default();
        assert!(pace.is_short());
        for _ in 0..3 {
            pace.note(LONG_TURN);
        }
        assert!(!pace.is_short());
        for _ in 0..2 {
            pace.note(SHORT_TURN);
        }
        assert!(pace.is_short());
        pace.note(Duration::MAX);
        pace.note(Duration::MAX);
        assert!(!pace.is_short());
    }
}
