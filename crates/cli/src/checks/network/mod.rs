//! `check network`: round trips to the members, held against heartbeats and elections.

mod probe;
mod rule;
mod target;

use super::format::{Grade, columns, time};
use super::{JSON, wants_json};
use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome, code};
use crate::flags::{int, text};
use crate::print;
use crate::print::json::Object;
pub(super) use probe::{Trip, measure};
pub(super) use rule::{Rule, advice};
pub(super) use target::{Target, of_cluster};

pub(super) const COMMAND: Command =
    command("network", "", "Measures round trips to the members, and what they mean for --heartbeat-interval", run)
        .with(&[
            text(
                "peers",
                "",
                "peer URLs to talk to, separated by commas, instead of asking --endpoints for the members",
            ),
            int("heartbeat-interval", "100", "milliseconds between heartbeats, as the members have it"),
            int("election-timeout", "1000", "milliseconds without a leader before an election, as the members have it"),
            int("count", "100", "requests to each member"),
            JSON,
        ]);

/// This many round trips are enough for a p99.
const COUNT_MAX: i64 = 100_000;

fn run(context: &Context) -> Outcome {
    if !context.args().is_empty() {
        return Err(Failure::args("check network takes no arguments: name members with --endpoints or --peers"));
    }
    let wants_json = wants_json(&context.parsed)?;
    let rule = Rule::read(&context.parsed)?;
    let count = context.parsed.int("count");
    if !(1..=COUNT_MAX).contains(&count) {
        return Err(Failure::args(format!("--count must be between 1 and {COUNT_MAX}")));
    }
    let targets = target::find(context)?;
    let trips = measure(context, targets, count.unsigned_abs() as usize)?;
    let text = if wants_json { json(&trips, rule) + "\n" } else { shown(&trips, rule, count) };
    print::out(text.as_bytes())?;
    let is_good = trips.iter().all(|trip| trip.grade(rule) == Grade::Pass);
    if is_good { Ok(()) } else { Err(Failure::new(code::ERROR, "")) }
}

fn shown(trips: &[Trip], rule: Rule, count: i64) -> String {
    let mut out = format!("Round trips from this machine, {count} requests to each member one after the other\n\n");
    let rows: Vec<Vec<String>> = trips
        .iter()
        .filter_map(|trip| {
            let reached = trip.outcome.as_ref().ok()?;
            let times = &reached.requests;
            let figures = [times.min(), times.percentile(0.5), times.p99(), times.max()];
            let connect = reached.connects.percentile(0.5);
            Some(
                std::iter::once(trip.target.to_string())
                    .chain(figures.into_iter().chain([connect]).map(time))
                    .collect(),
            )
        })
        .collect();
    if !rows.is_empty() {
        out += &columns(&["member", "min", "median", "p99", "max", "connecting"], &rows);
        out += "\n";
    }
    for trip in trips {
        out += &format!("{}: {}\n", trip.grade(rule).shown(), trip.verdict(rule));
    }
    match advice(trips) {
        Some(advised) => out + &format!("\nRecommended: {advised}\n"),
        None => out,
    }
}

impl Trip {
    pub(super) fn grade(&self, rule: Rule) -> Grade {
        match &self.outcome {
            Ok(reached) => Grade::of(rule.allows(reached.requests.p99())),
            Err(_) => Grade::Fail,
        }
    }

    pub(super) fn verdict(&self, rule: Rule) -> String {
        match &self.outcome {
            Ok(reached) => format!("{}: {}", self.target, rule.verdict(reached.requests.p99())),
            Err(failure) => format!("{}: {}", self.target, failure.text),
        }
    }

    pub(super) fn json(&self, rule: Rule) -> String {
        let object = Object::default().text("member", &self.target.name).text("url", self.target.shown_url());
        let object = match &self.outcome {
            Ok(reached) => {
                let object = object.raw("requestSeconds", reached.requests.json());
                let object = object.raw("connectSeconds", reached.connects.json());
                match reached.clock {
                    Some(clock) => object
                        .raw("clockAheadSeconds", clock.ahead_seconds)
                        .raw("clockErrorSeconds", clock.error_seconds),
                    None => object,
                }
            }
            Err(failure) => object.text("error", &failure.text),
        };
        object.text("verdict", self.grade(rule).name()).end()
    }
}

fn json(trips: &[Trip], rule: Rule) -> String {
    let members: Vec<String> = trips.iter().map(|trip| trip.json(rule)).collect();
    let is_good = trips.iter().all(|trip| trip.grade(rule) == Grade::Pass);
    let object = Object::default()
        .raw("heartbeatIntervalMs", rule.heartbeat_ms)
        .raw("electionTimeoutMs", rule.election_ms)
        .raw("members", format!("[{}]", members.join(",")));
    let object = match advice(trips) {
        Some(Rule { heartbeat_ms, election_ms }) => {
            object.raw("recommendedHeartbeatIntervalMs", heartbeat_ms).raw("recommendedElectionTimeoutMs", election_ms)
        }
        None => object,
    };
    object.text("verdict", Grade::of(is_good).name()).end()
}
