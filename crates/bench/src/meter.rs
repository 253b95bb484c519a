//! What a run has shown.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rpc::Status;

use crate::histogram::Histogram;
use crate::series::Series;

/// Limit of different error texts that are counted separately.
const TEXTS_MAX: usize = 100;
/// The text for all further errors.
const OTHERS: &str = "other errors";
/// The text for requests that an open loop did not send.
const UNSENT: &str = "not sent: due before the end, when all clients were waiting for answers";

/// Counts of one thread, or of several together.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    /// Requests that were sent.
    pub sent: u64,
    /// Requests that were answered correctly.
    pub succeeded: u64,
    /// Correct answers that came before the planned end.
    pub in_time: u64,
    /// Requests of an open loop that were due and never sent.
    pub unsent: u64,
    /// Errors, by the name of their code.
    pub failed: BTreeMap<&'static str, u64>,
    /// The text of one error for each code.
    pub examples: BTreeMap<&'static str, String>,
    /// All errors and wrong answers, by their text.
    pub(crate) texts: BTreeMap<String, u64>,
    /// Wrong answers without an error, by the reason.
    pub wrong: BTreeMap<&'static str, u64>,
    /// Bytes of gRPC messages that came, with their prefixes.
    pub(crate) data_bytes: u64,
    /// Keys of lists, or events.
    pub items: u64,
    /// Latencies of successful requests.
    pub latency: Histogram,
    /// The measurements of each second, if they are recorded.
    pub(crate) series: Option<Series>,
    /// The different tokens in answers.
    pub tokens: BTreeSet<String>,
    /// When the last answer came.
    pub(crate) last: Option<Instant>,
}

impl Meter {
    /// Counts a request that was due or sent at `since` and has ended with `status`; `verdict` is that on its answer.
    pub(crate) fn count(&mut self, status: &Status, verdict: Result<(), &'static str>, since: Instant, now: Instant) {
        self.last = Some(now);
        if *status != Status::OK {
            return self.fail(status);
        }
        match verdict {
            Ok(()) => {
                self.succeeded += 1;
                let latency = now.saturating_duration_since(since);
                self.latency.record(latency.as_nanos() as u64);
                if let Some(series) = &mut self.series {
                    series.record(since, latency);
                }
            }
            Err(why) => {
                *self.wrong.entry(why).or_default() += 1;
                self.note(why.into(), 1);
            }
        }
    }

    fn note(&mut self, text: String, count: u64) {
        let is_full = self.texts.len() >= TEXTS_MAX && !self.texts.contains_key(&text);
        *self.texts.entry(if is_full { OTHERS.into() } else { text }).or_default() += count;
    }

    /// Requests that have ended, successfully or not.
    pub(crate) fn done(&self) -> u64 {
        self.succeeded + self.texts.values().sum::<u64>()
    }

    /// The text of an error or of a wrong answer, if there was one.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.texts.keys().map(String::as_str).find(|text| *text != UNSENT)
    }

    /// Counts a request that has failed, or could not be sent.
    pub(crate) fn fail(&mut self, status: &Status) {
        let name = status.code.name();
        *self.failed.entry(name).or_default() += 1;
        self.examples.entry(name).or_insert_with(|| status.message.to_string());
        self.note(told(status), 1);
    }

    /// Counts requests whose answers are no longer awaited.
    pub(crate) fn lose(&mut self, count: u64) {
        let status = Status::new(api::Code::DeadlineExceeded, "no answer by the end of the run");
        (0..count).for_each(|_| self.fail(&status));
    }

    /// Counts requests that were due and are never sent.
    pub(crate) fn miss(&mut self, count: u64) {
        if count > 0 {
            self.unsent += count;
            self.note(UNSENT.into(), count);
        }
    }

    /// Removes the requests that `miss` has counted from the errors, and returns their text and number.
    pub(crate) fn take_missed(&mut self) -> Option<(String, u64)> {
        self.texts.remove_entry(UNSENT)
    }

    pub(crate) fn merge(&mut self, other: &Meter) {
        self.sent += other.sent;
        self.succeeded += other.succeeded;
        self.in_time += other.in_time;
        self.unsent += other.unsent;
        self.data_bytes += other.data_bytes;
        self.items += other.items;
        for (&name, count) in &other.failed {
            *self.failed.entry(name).or_default() += count;
        }
        for (&name, text) in &other.examples {
            self.examples.entry(name).or_insert_with(|| text.clone());
        }
        for (&name, count) in &other.wrong {
            *self.wrong.entry(name).or_default() += count;
        }
        for (text, &count) in &other.texts {
            self.note(text.clone(), count);
        }
        match (&mut self.series, &other.series) {
            (Some(series), Some(other)) => series.merge(other),
            (series @ None, Some(other)) => *series = Some(other.clone()),
            (_, None) => {}
        }
        self.tokens.extend(other.tokens.iter().cloned());
        self.latency.merge(&other.latency);
        self.last = self.last.max(other.last);
    }
}

/// The text of an error as in etcd's tools: errors of etcd's catalogue without their code, others with it.
pub(crate) fn told(status: &Status) -> String {
    if status.message.starts_with("etcdserver: ") {
        return status.message.to_string();
    }
    format!("rpc error: code = {} desc = {}", status.code.name(), status.message)
}

/// The time and processor time of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// From the beginning to the last answer.
    pub time: Duration,
    /// Processor time of this process.
    pub own_cpu: Duration,
    /// Processor time of the processes that the course names.
    pub servers_cpu: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_answer_and_what_was_not_sent_is_told_apart() {
        let (mut meter, mut other) = (Meter { sent: 5, in_time: 1, ..Meter::default() }, Meter::default());
        meter.miss(0);
        assert!(meter.texts.is_empty());
        meter.miss(7);
        assert_eq!(meter.trouble(), None);
        other.lose(2);
        meter.merge(&other);
        assert!(meter.trouble().is_some_and(|text| text.contains("no answer")));
        meter.merge(&meter.clone());
        assert_eq!((meter.unsent, meter.in_time, meter.failed.get("DeadlineExceeded")), (14, 2, Some(&4)));
        assert_eq!(meter.texts.values().copied().collect::<Vec<_>>(), [14, 4]);
    }
}
