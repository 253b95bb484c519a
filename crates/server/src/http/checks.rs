//! `/livez` and `/readyz`: whether a member should be restarted, and whether it should be sent requests. Each consists of checks, which
//! can be left out (`?exclude=`), listed (`?verbose`) and requested one by one (`/readyz/linearizable_read`).

use super::{plain, values};
use crate::node::{Node, Weight};
use api::etcdserverpb::{AlarmType, RangeRequest};
use http::StatusCode;
use rpc::HttpResponder;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use telemetry::logging::{self, Pace, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    DataCorruption,
    SerializableRead,
    LinearizableRead,
    NonLearner,
    /// An observer's only.
    Source,
}

impl Check {
    fn name(self) -> &'static str {
        match self {
            Check::DataCorruption => "data_corruption",
            Check::SerializableRead => "serializable_read",
            Check::LinearizableRead => "linearizable_read",
            Check::NonLearner => "non_learner",
            Check::Source => "observer_source",
        }
    }
}

const LIVE: &[Check] = &[Check::SerializableRead];
/// What waits for others comes last.
const READY: &[Check] =
    &[Check::DataCorruption, Check::SerializableRead, Check::NonLearner, Check::Source, Check::LinearizableRead];

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// `livez` or `readyz`.
    kind: &'static str,
    checks: &'static [Check],
}

/// The checks of a path.
pub(super) fn find(path: &str) -> Option<Asked> {
    for (kind, checks) in [("livez", LIVE), ("readyz", READY)] {
        let Some(rest) = path.strip_prefix('/').and_then(|path| path.strip_prefix(kind)) else { continue };
        if rest.is_empty() {
            return Some(Asked { kind, checks });
        }
        let name = rest.strip_prefix('/')?;
        let place = checks.iter().position(|check| check.name() == name)?;
        return Some(Asked { kind, checks: checks.get(place..=place)? });
    }
    None
}

/// What the checks that were made have found.
struct Found {
    text: String,
    failed: bool,
}

impl Found {
    fn add(&mut self, node: &Node, kind: &'static str, check: Check, found: Result<(), String>) {
        node.metrics.health.checked(kind, check.name(), found.is_ok());
        // Writing to a string cannot fail.
        let _ = match found {
            Ok(()) => writeln!(self.text, "[+]{} ok", check.name()),
            Err(why) => {
                self.failed = true;
                writeln!(self.text, "[-]{} failed: {why}", check.name())
            }
        };
    }

    fn send(self, kind: &str, verbose: bool, responder: HttpResponder) {
        static PACE: Pace = Pace::new();
        if self.failed
            && let Some(left_out) = PACE.line()
        {
            let fields =
                [("path", kind.into()), ("reason", Value::from(&self.text)), ("lines-left-out", left_out.into())];
            logging::error("Health check error", &fields);
        }
        let response = match self.failed {
            // Go ends an error with a line end of its own.
            true => plain(StatusCode::SERVICE_UNAVAILABLE, self.text + "\n"),
            false if verbose => plain(StatusCode::OK, self.text + "ok\n"),
            false => plain(StatusCode::OK, "ok\n"),
        };
        responder.send(response);
    }
}

/// Makes the checks and sends the results. They run as the member itself: permissions do not matter.
pub(super) fn answer(node: &Arc<Node>, asked: Asked, query: &str, responder: HttpResponder) {
    let excluded: Vec<String> = values(query, "exclude").collect();
    let verbose = values(query, "verbose").next().is_some();
    let is_excluded = |check: &Check| excluded.iter().any(|name| name == check.name());
    let mut found = Found { text: String::new(), failed: false };
    let mut waits = false;
    for &check in asked.checks.iter().filter(|check| !is_excluded(check)) {
        match check {
            Check::Source if !node.is_observer() => {}
            Check::LinearizableRead => waits = true,
            other => found.add(node, asked.kind, other, look(node, other)),
        }
    }
    if !waits {
        return found.send(asked.kind, verbose, responder);
    }
    let own = node.clone();
    node.linearize_by_turn(Weight::NONE, move |allowed| {
        let mut found = found;
        let read = allowed.and_then(|()| read_one(&own));
        found.add(&own, asked.kind, Check::LinearizableRead, read.map_err(|error| error.to_string()));
        found.send(asked.kind, verbose, responder);
    });
}

/// A check that waits for no other member.
fn look(node: &Node, check: Check) -> Result<(), String> {
    let is_corrupt = |alarm: i32| AlarmType::try_from(alarm) == Ok(AlarmType::Corrupt);
    match check {
        Check::DataCorruption if node.store.alarms().iter().any(|alarm| is_corrupt(alarm.alarm)) => {
            Err("alarm activated: CORRUPT".into())
        }
        Check::NonLearner if node.status.is_learner() => Err("member is a learner".into()),
        Check::SerializableRead => read_one(node).map_err(|error| error.to_string()),
        Check::Source if node.link.as_ref().is_some_and(|link| !link.has_source()) => {
            Err("this observer follows nobody at the moment".into())
        }
        Check::DataCorruption | Check::NonLearner | Check::Source | Check::LinearizableRead => Ok(()),
    }
}

/// Reads one key from this member's store, as etcd's probes do: a store that is stuck answers no probe. It counts as a range, as with
/// etcd.
pub(super) fn read_one(node: &Node) -> Result<(), api::Error> {
    let request = RangeRequest { key: vec![0].into(), limit: 1, serializable: true, ..RangeRequest::default() };
    node.metrics.operations.ranges.fetch_add(1, Ordering::Relaxed);
    node.store.range(&request).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_checks() {
        assert_eq!(find("/livez"), Some(Asked { kind: "livez", checks: LIVE }));
        assert_eq!(find("/readyz/non_learner").map(|asked| asked.checks), Some(&[Check::NonLearner][..]));
        for path in ["/livez/", "/livezz", "/livez/linearizable_read", "/readyz/nothing", "/health", "livez", ""] {
            assert_eq!(find(path), None, "{path}");
        }
    }
}
