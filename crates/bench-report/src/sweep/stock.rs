//! The keys that a row needs, and the space that it may take.

use std::time::Duration;

use bench::BenchError;

use super::case::Case;
use super::options::Options;
use super::tables::OWN;
use crate::measure::{Cluster, Load, Task};

/// Connections for writing the keys that a load only reads.
const FILL_CONNECTIONS: usize = 10;
const FILL_CALLS: usize = 200;
/// A time limit that no fill reaches.
const FILL_TIME_MAX: Duration = Duration::from_secs(3600);
/// Share of the free space that the keys of one row may take: a store needs more than the keys themselves.
const SPACE_SHARE: f64 = 0.6;

/// The keys that the sweep has written to a cluster.
pub(super) struct Stock<'a> {
    cluster: &'a Cluster,
    compacts: bool,
    /// The keys that exist now: prefix, number, bytes of values.
    filled: Option<(Vec<u8>, u64, usize)>,
    /// Whether anything was written since the last compaction.
    is_used: bool,
}

/// How many requests a row has room for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// All requests of the row.
    Enough(Option<u64>),
    /// Only this many of its requests, and the reason.
    Less(u64, String),
    /// No requests: its keys do not fit, and the reason.
    None(String),
}

impl<'a> Stock<'a> {
    /// Checks whether the cluster has keys of others.
    pub(super) fn new(cluster: &'a Cluster, options: &Options) -> Result<Stock<'a>, BenchError> {
        let (own, all) = cluster.keys(OWN.as_bytes())?;
        let compacts = options.compacts || own == all;
        if !compacts {
            flags::say!(
                "The store has {} keys that are not of the sweep: nothing is compacted between rows (`--compact` does it nevertheless).",
                all - own
            );
        }
        Ok(Stock { cluster, compacts, filled: None, is_used: own > 0 })
    }

    /// Prepares the keys for a row, with which `offered` puts are offered. Deletes what other rows have left behind.
    pub(super) fn prepare(&mut self, case: &Case, offered: u64) -> Result<Room, BenchError> {
        let load = &case.load;
        let wanted = (load.key_prefix.clone(), load.keys, load.value_bytes);
        // Rows that overwrite keys make history grow, so each of them begins with new keys.
        let is_kept = case.needs_keys && case.writes.is_none();
        if is_kept && self.filled.as_ref() == Some(&wanted) {
            return Ok(Room::Enough(case.requests));
        }
        if is_kept && self.filled.is_none() && self.holds(load)? {
            self.filled = Some(wanted);
            return Ok(Room::Enough(case.requests));
        }
        self.clear()?;
        let puts = if case.needs_keys { Some(load.keys.saturating_add(offered)) } else { case.requests };
        let room = self.room(case, puts)?;
        if case.needs_keys && matches!(room, Room::Enough(_)) {
            self.fill(load)?;
            self.filled = Some(wanted);
            return Ok(Room::Enough(case.requests));
        }
        self.is_used = true;
        Ok(room)
    }

    /// Deletes everything that the sweep has written.
    pub(super) fn clear(&mut self) -> Result<(), BenchError> {
        if !self.is_used {
            return Ok(());
        }
        self.filled = None;
        self.cluster.delete(OWN.as_bytes())?;
        if self.compacts {
            self.cluster.compact()?;
        }
        self.is_used = false;
        Ok(())
    }

    /// Whether an interrupted run has left exactly these keys. The loads check the values themselves.
    fn holds(&self, load: &Load) -> Result<bool, BenchError> {
        let (keys, _) = self.cluster.keys(&load.key_prefix)?;
        let (own, _) = self.cluster.keys(OWN.as_bytes())?;
        Ok(keys == load.keys && own == keys && self.is_used)
    }

    fn room(&self, case: &Case, puts: Option<u64>) -> Result<Room, BenchError> {
        let (left, is_full) = self.cluster.space()?;
        if is_full {
            return Err(BenchError::Server(
                "the cluster has the alarm NOSPACE and takes no puts: free space or raise `--quota-backend-bytes`, then `cairn ctl \
                 alarm disarm`"
                    .into(),
            ));
        }
        Ok(fit(case, puts, left))
    }

    fn fill(&mut self, load: &Load) -> Result<(), BenchError> {
        self.is_used = true;
        let task = Task {
            load: load.fill(),
            places: self.cluster.places()?,
            connections: FILL_CONNECTIONS.min(load.keys as usize),
            calls: FILL_CALLS.min(load.keys as usize),
            threads: 1,
            requests: Some(load.keys),
            time: Some(FILL_TIME_MAX),
            rate: None,
            token: None,
        };
        let result = self.cluster.measure(&task, None)?;
        if result.succeeded == load.keys {
            return Ok(());
        }
        let why = result.examples.values().next().map_or("no reason was given", String::as_str);
        Err(BenchError::Server(format!("only {} of {} keys could be written: {why}", result.succeeded, load.keys)))
    }
}

/// How many of `puts` have room in the part of the quota that is `left`.
fn fit(case: &Case, puts: Option<u64>, left: Option<u64>) -> Room {
    let (Some(puts), Some(left)) = (puts, left) else { return Room::Enough(case.requests) };
    if case.table == "auth" {
        return Room::Enough(case.requests);
    }
    let fitting = (left as f64 * SPACE_SHARE) as u64 / case.load.put_bytes();
    if puts <= fitting {
        return Room::Enough(case.requests);
    }
    let needs = crate::report_page::bytes((puts.saturating_mul(case.load.put_bytes())) as f64);
    let why =
        format!("{puts} puts need about {needs}, and {} of the quota are left", crate::report_page::bytes(left as f64));
    if case.needs_keys || fitting < case.clients as u64 { Room::None(why) } else { Room::Less(fitting, why) }
}

#[cfg(test)]
mod tests {
    use super::super::tables::cases;
    use super::*;

    #[test]
    fn rows_take_no_more_than_there_is() {
        let words: Vec<String> = "--out x --only put,get --user a:b".split(' ').map(str::to_owned).collect();
        let cases = cases(&Options::parse(&words).expect("options"));
        let largest =
            cases.iter().find(|case| case.parameters.count("key_prefix_bytes") == Some(1024) && case.clients == 100);
        let largest = largest.expect("the matrix has it");
        let quota = Some(2 << 30);
        let Room::Less(puts, why) = fit(largest, largest.requests, quota) else { panic!("3 GB fit into 2 GB") };
        assert!(
            (300_000..700_000).contains(&puts) && why.contains("3.19 GB") && why.contains("2.15 GB"),
            "{puts} {why}"
        );
        assert_eq!(fit(largest, largest.requests, None), Room::Enough(Some(1_000_000)));
        assert_eq!(fit(&cases[0], cases[0].requests, quota), Room::Enough(Some(10_000)));
        let reads = cases.iter().find(|case| case.table == "get").expect("there are some");
        assert!(matches!(fit(reads, Some(reads.load.keys), Some(1 << 20)), Room::None(_)));
        assert!(matches!(fit(reads, Some(u64::MAX), quota), Room::None(_)));
    }
}
