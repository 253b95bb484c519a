//! `/health`: etcd's oldest probe, one answer for everything.

use super::{checks, page, plain, values};
use crate::node::{Node, Weight};
use api::etcdserverpb::AlarmType;
use http::StatusCode;
use rpc::HttpResponder;
use std::sync::Arc;
use telemetry::logging::{self, Pace, Value};

/// Alarms first, then the leader, then a read; `exclude=NOSPACE` and `serializable=true` as etcd has them.
pub(super) fn answer(node: &Arc<Node>, query: &str, responder: HttpResponder) {
    let excluded: Vec<String> = values(query, "exclude").collect();
    let has = |name: &str| excluded.iter().any(|excluded| excluded == name);
    let alarms = node.store.alarms();
    let mut failed = alarms.iter().find_map(|alarm| match AlarmType::try_from(alarm.alarm) {
        Ok(AlarmType::Nospace) if !has("NOSPACE") => Some("ALARM NOSPACE"),
        Ok(AlarmType::Corrupt) if !has("CORRUPT") => Some("ALARM CORRUPT"),
        _ => None,
    });
    let serializable = values(query, "serializable").next().is_some_and(|value| value == "true");
    if failed.is_none() && !serializable && node.status.leader() == 0 {
        failed = Some("RAFT NO LEADER");
    }
    let own = node.clone();
    match failed {
        None if !serializable => node.linearize_by_turn(Weight::NONE, move |allowed| {
            let read = allowed.and_then(|()| checks::read_one(&own));
            let reason = read.err().map(|error| format!("RANGE ERROR:{error}"));
            send(&own, reason.as_deref(), responder);
        }),
        Some(reason) => send(node, Some(reason), responder),
        None => {
            let reason = checks::read_one(node).err().map(|error| format!("RANGE ERROR:{error}"));
            send(node, reason.as_deref(), responder);
        }
    }
}

/// A line about a failure, with etcd's text. Whoever asks causes it, so there are only so many.
fn tell(reason: &str) {
    static PACE: Pace = Pace::new();
    let Some(left_out) = PACE.line() else { return };
    let left_out = ("lines-left-out", Value::from(left_out));
    if let Some(alarm) = reason.strip_prefix("ALARM ") {
        logging::warn("serving /health false due to an alarm", &[("alarm", alarm.into()), left_out]);
    } else if let Some(error) = reason.strip_prefix("RANGE ERROR:") {
        logging::warn("serving /health false; Range fails", &[("error", error.into()), left_out]);
    } else {
        logging::warn("serving /health false; no leader", &[left_out]);
    }
}

fn send(node: &Node, reason: Option<&str>, responder: HttpResponder) {
    if let Some(reason) = reason {
        tell(reason);
    }
    node.metrics.health.answered(reason.is_none());
    let (status, healthy) = match reason {
        None => (StatusCode::OK, "true"),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "false"),
    };
    let mut body = format!("{{\"health\":\"{healthy}\",\"reason\":");
    telemetry::logging::quote(&mut body, reason.unwrap_or_default());
    body.push('}');
    if reason.is_some() {
        body.push('\n');
    }
    responder.send(match status {
        StatusCode::OK => page(status, "text/plain; charset=utf-8", body),
        _ => plain(status, body),
    });
}
