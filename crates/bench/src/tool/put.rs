//! `put`: writes keys.

use std::time::{Duration, Instant};

use api::etcdserverpb::{
    CompactionRequest, CompactionResponse, HashKvRequest, HashKvResponse, RangeRequest, RangeResponse, StatusRequest,
    StatusResponse,
};
use flags::{Parsed, duration, duration_text, int, switch, text};

use super::command::{Action, Command};
use super::failure::{Failure, Outcome};
use super::keys::{Keys, length, noise};
use super::say;
use super::session::{GRACE, Session};
use super::single::Simple;
use crate::answer;
use crate::interrupt::is_interrupted;
use crate::meter::told;
use crate::work::Request;
use api::varint::put_nonempty;

pub(crate) const COMMAND: Command = Command {
    name: "put",
    arguments: "",
    short: "Benchmark put",
    long: "Benchmark put: writes keys of one length. With --rate requests are sent at times that are fixed beforehand, and latency \
           counts from those times; what waits because all clients are busy counts too.",
    flags: &[
        switch("check-hashkv", "print the checksum of the data at the end"),
        int("compact-index-delta", "1000", "revisions that a compaction leaves"),
        duration("compact-interval", "0s", "compact so often"),
        int("key-size", "8", "bytes of a key"),
        int("key-space-size", "1", "different keys"),
        text("prefix", "", "what every key begins with"),
        int("rate", "0", "puts per second, sent whatever the answers do (0: each client sends when it has its answer)"),
        switch("sequential-keys", "go through the keys in order"),
        int("total", "10000", "puts altogether"),
        int("val-size", "8", "bytes of a value"),
    ],
    action: Action::Run(run),
};

fn run(parsed: &Parsed) -> Outcome {
    let puts = Puts {
        keys: Keys::new(parsed.text("prefix"), parsed.int("key-size"), parsed.int("key-space-size"))?,
        value: noise(length("val-size", parsed.int("val-size"))?),
        is_sequential: parsed.switch("sequential-keys"),
        next: 0,
    };
    let session = Session::open(parsed)?;
    let pace = session.pace()?;
    let every = parsed.duration("compact-interval");
    let (meters, cost) = std::thread::scope(|scope| {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        if !every.is_zero() {
            let session = &session;
            scope.spawn(move || compact(session, parsed.int("compact-index-delta"), every, &stopped));
        }
        let measured = session.measure(pace, 1, || puts.clone());
        drop(stop);
        measured
    })?;
    say(&format!("{}\n", session.tell("put", &meters[0], cost)));
    if parsed.switch("check-hashkv") && !is_interrupted() {
        say(&format!("{}\n", checksum(&session)?));
    }
    session.end()
}

/// Compacts again and again, until it is told to stop or something fails.
fn compact(session: &Session, delta: i64, every: Duration, stopped: &std::sync::mpsc::Receiver<()>) {
    while let Err(std::sync::mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(every) {
        let request = RangeRequest { key: "foo".into(), ..RangeRequest::default() };
        let found: Result<RangeResponse, _> = session.ask_within(Some(GRACE), "/etcdserverpb.KV/Range", &request);
        let compacted = found.and_then(|found| {
            let revision = found.header.map_or(0, |header| header.revision).saturating_sub(delta).max(0);
            let request = CompactionRequest { revision, physical: false };
            session.ask_within::<CompactionResponse>(Some(GRACE), "/etcdserverpb.KV/Compact", &request)
        });
        if let Err(status) = compacted {
            flags::say!("warning: cannot compact: {}", told(&status));
        }
    }
}

/// The checksum of the data of the first endpoint.
fn checksum(session: &Session) -> Outcome<String> {
    let host = session.first_endpoint();
    let began = Instant::now();
    let failed =
        |what: &str, status| Failure::new(format!("Failed to get the {what} of endpoint {host} ({})", told(&status)));
    let hash: HashKvResponse = session
        .ask("/etcdserverpb.Maintenance/HashKV", &HashKvRequest::default())
        .map_err(|status| failed("hashkv", status))?;
    let status: StatusResponse = session
        .ask("/etcdserverpb.Maintenance/Status", &StatusRequest::default())
        .map_err(|status| failed("status", status))?;
    let (hash, time) = (hash.hash, duration_text(began.elapsed()));
    let size = size(status.db_size.max(0) as u64);
    Ok(format!(
        "HashKV Summary:\n\tHashKV: {hash}\n\tEndpoint: {host}\n\tTime taken to get hashkv: {time}\n\tDB size: {size}"
    ))
}

/// A size as etcd's tools write it.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 10 {
        return format!("{bytes} B");
    }
    let power = (bytes.ilog10() / 3) as usize;
    let value = (bytes as f64 / 1000_f64.powi(power as i32) * 10.0 + 0.5).floor() / 10.0;
    if value < 10.0 { format!("{value:.1} {}", UNITS[power]) } else { format!("{value:.0} {}", UNITS[power]) }
}

#[derive(Clone)]
struct Puts {
    keys: Keys,
    value: Vec<u8>,
    is_sequential: bool,
    next: u64,
}

impl Simple for Puts {
    const METHODS: &'static [&'static str] = &["/etcdserverpb.KV/Put"];

    fn make(&mut self, message: &mut Vec<u8>) -> Request {
        message.clear();
        let number = self.next;
        self.next += 1;
        let key = if self.is_sequential { self.keys.at(number) } else { self.keys.any() };
        put_nonempty(message, 1, key);
        put_nonempty(message, 2, &self.value);
        Request::default()
    }

    fn check(&mut self, _: Request, message: &[u8]) -> Result<(), &'static str> {
        answer::put(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_etcds() {
        for (bytes, text) in [(0, "0 B"), (9, "9 B"), (999, "999 B"), (20_480, "20 kB"), (1_500_000, "1.5 MB")] {
            assert_eq!(size(bytes), text);
        }
    }
}
