//! The page for scripts: an object on one line.

use super::view::{Row, STAGES, View};
use crate::print::json::Object;

pub(super) fn object(view: &View) -> String {
    let list = |items: Vec<String>| format!("[{}]", items.join(","));
    let text = |text: &String| {
        let quoted = Object::default().text("", text).end();
        quoted.trim_start_matches("{\"\":").trim_end_matches('}').to_string()
    };
    let prefixes = view.hottest.prefixes.iter().map(|(prefix, count)| {
        Object::default().text("prefix", &String::from_utf8_lossy(prefix)).raw("writes", count).end()
    });
    let slow = view.slow.iter().map(|one| {
        let object = Object::default().raw("atSeconds", one.at).text("member", &one.member);
        object.text("type", &one.kind).raw("count", one.count).end()
    });
    let object = Object::default().raw("seconds", format!("{:.3}", view.seconds)).raw("revision", view.revision);
    let object = object.raw("term", view.term).text("leader", view.leader.as_deref().unwrap_or_default());
    let object = object
        .raw("alarms", list(view.alarms.iter().map(text).collect()))
        .raw("members", list(view.members.iter().map(member).collect()))
        .raw("sampledWrites", view.hottest.writes)
        .raw("hottest", list(prefixes.collect()))
        .raw("slow", list(slow.collect()));
    match &view.hottest.refused {
        Some(why) => object.text("sampleError", why).end(),
        None => object.end(),
    }
}

fn member(row: &Row) -> String {
    let object = Object::default().text("name", &row.name).text("role", row.role);
    if let Some(error) = &row.error {
        return object.text("error", error).end();
    }
    let object = object.raw("lag", row.lag).raw("databaseBytes", row.db_bytes);
    let Some(figures) = &row.figures else { return object.end() };
    let number = |value: Option<f64>| value.map_or("null".to_string(), |value| value.to_string());
    let stages = STAGES
        .iter()
        .zip(&figures.stages)
        .fold(Object::default(), |object, (stage, p99)| object.raw(stage, number(*p99)));
    object
        .raw("putsPerSecond", figures.puts)
        .raw("deletesPerSecond", figures.deletes)
        .raw("txnsPerSecond", figures.txns)
        .raw("rangesPerSecond", figures.ranges)
        .raw("eventsPerSecond", figures.events)
        .raw("leasesGrantedPerSecond", figures.leases_granted)
        .raw("leasesRenewedPerSecond", figures.leases_renewed)
        .raw("putP99Seconds", number(figures.put_seconds))
        .raw("rangeP99Seconds", number(figures.range_seconds))
        .raw("fsyncP99Seconds", number(figures.fsync_seconds))
        .raw("connections", number(figures.connections))
        .raw("watches", number(figures.watches))
        .raw("leases", number(figures.leases))
        .raw("stageP99Seconds", stages.end())
        .end()
}
