//! What `keys usage` prints.

use super::tally::{Outstanding, Sum, Tally};
use super::{Source, Walked, shown_key};
use crate::print::json::Object;
use crate::print::{go, table};

/// For people.
pub(super) fn plain(tally: &Tally, source: &Source, walked: &Walked) -> String {
    let status = &source.status;
    let size = |bytes: i64| go::bytes(bytes.max(0).unsigned_abs());
    let compacted = match tally.compacted {
        Some(revision) if revision > 0 => format!("compacted up to {revision}"),
        Some(_) => "never compacted".into(),
        None => "(its metrics do not say up to where it is compacted)".into(),
    };
    let quota = if status.db_size_quota > 0 { format!(" of {}", size(status.db_size_quota)) } else { String::new() };
    let mut out = format!(
        "{}: {} keys under {} at revision {}, {compacted}; its database has {}{quota}, {} of it in use\n",
        source.endpoint,
        tally.total().keys,
        go::quote(&tally.prefix),
        walked.revision,
        size(status.db_size),
        size(status.db_size_in_use),
    );
    if walked.moved {
        out += "The history was compacted meanwhile: keys that changed may be counted twice, or not at all.\n";
    }
    if !walked.is_exact {
        out += "~ is estimated from the values that were read; --exact reads them all.\n";
    }
    let heaviest = tally.heaviest();
    let (shown, hidden) = heaviest.split_at(heaviest.len().min(tally.top));
    let mut rows: Vec<Vec<String>> =
        shown.iter().map(|(level, group)| row(&shown_key(level), &Sum::of([*group]))).collect();
    let others = Sum::of(hidden.iter().map(|(_, group)| *group).chain([&tally.others]));
    if others.keys > 0 {
        rows.push(row("(all others)", &others));
    }
    rows.push(row("(together)", &tally.total()));
    let headings = ["level", "keys", "live bytes", "history versions <=", "history bytes ~<=", "oldest revision"];
    out += &table::draw(&headings, &rows);
    let some = if walked.is_exact { "" } else { " (of those whose value was read)" };
    list(&mut out, &format!("Largest keys{some}"), &tally.largest, go::bytes);
    list(&mut out, "Written most often since they were created", &tally.most_written, |versions| {
        format!("{versions} times")
    });
    list(&mut out, "Not written for longest", &tally.oldest, |weight| format!("since revision {}", u64::MAX - weight));
    out
}

fn row(name: &str, group: &Sum) -> Vec<String> {
    let mark = if group.is_exact() { "" } else { "~" };
    vec![
        name.into(),
        group.keys.to_string(),
        format!("{mark}{}", go::bytes(group.live_bytes)),
        group.history.to_string(),
        go::bytes(group.history_bytes),
        group.oldest.to_string(),
    ]
}

fn list(out: &mut String, title: &str, keys: &[Outstanding], told: impl Fn(u64) -> String) {
    if keys.is_empty() {
        return;
    }
    go::put(out, format_args!("\n{title}\n"));
    for one in keys {
        go::put(out, format_args!("  {:>20}  {}\n", told(one.weight), shown_key(&one.key)));
    }
}

/// For scripts.
pub(super) fn json(tally: &Tally, source: &Source, walked: &Walked) -> String {
    let list = |items: Vec<String>| format!("[{}]", items.join(","));
    let keys = |name: &str, keys: &[Outstanding], weight: &dyn Fn(u64) -> u64| {
        let one =
            |one: &Outstanding| Object::default().text("key", &text(&one.key)).raw(name, weight(one.weight)).end();
        list(keys.iter().map(one).collect())
    };
    let levels: Vec<String> =
        tally.heaviest().into_iter().take(tally.top).map(|(level, one)| group(&text(level), &Sum::of([one]))).collect();
    let object = Object::default().text("endpoint", source.endpoint.as_str()).text("prefix", &text(&tally.prefix));
    let object = object.raw("revision", walked.revision).raw("movedOn", walked.moved).raw("exact", walked.is_exact);
    let object = match tally.compacted {
        Some(revision) => object.raw("compactRevision", revision),
        None => object,
    };
    object
        .raw("dbSize", source.status.db_size)
        .raw("dbSizeInUse", source.status.db_size_in_use)
        .raw("dbSizeQuota", source.status.db_size_quota)
        .raw("total", group("", &tally.total()))
        .raw("levelCount", tally.groups.len())
        .raw("levels", list(levels))
        .raw("largest", keys("bytes", &tally.largest, &|weight| weight))
        .raw("mostWritten", keys("versions", &tally.most_written, &|weight| weight))
        .raw("oldest", keys("modRevision", &tally.oldest, &|weight| u64::MAX - weight))
        .end()
}

fn group(name: &str, group: &Sum) -> String {
    Object::default()
        .text("level", name)
        .raw("keys", group.keys)
        .raw("keyBytes", group.key_bytes)
        .raw("liveBytes", group.live_bytes)
        .raw("liveBytesAreExact", group.is_exact())
        .raw("valuesRead", group.values)
        .raw("historyVersionsAtMost", group.history)
        .raw("historyBytesEstimatedAtMost", group.history_bytes)
        .raw("oldestModRevision", group.oldest)
        .end()
}

/// A key as it is, if it is text; with escapes if it is not.
fn text(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) => text.into(),
        Err(_) => {
            let quoted = go::quote(key);
            // The key may end with an escaped quote, which stays.
            let inner = quoted.strip_prefix('"').and_then(|quoted| quoted.strip_suffix('"'));
            inner.unwrap_or(&quoted).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_whole() {
        assert_eq!(text(b"\"a\""), "\"a\"");
        assert_eq!(text(b"\"a\xff\""), "\\\"a\\xff\\\"");
    }
}
