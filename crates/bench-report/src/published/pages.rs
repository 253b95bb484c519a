//! What performance pages say of etcd, release by release.

use super::{Figure, Study};
use crate::runfile::Row;

static ETCD_3_0: Study = Study {
    name: "etcd 3.0",
    setup: "three members of 8 vCPU, 16 GB and SSD, client of 16 vCPU and 30 GB, key 8 B, value 256 B, Go 1.6.2",
    members: 3,
};
static ETCD_3_2: Study = Study {
    name: "etcd 3.2",
    setup: "three members of 8 vCPU, 16 GB and SSD, client of 16 vCPU and 30 GB, key 8 B, value 256 B, Go 1.8.3",
    members: 3,
};
static ETCD_BEFORE_3_4_9: Study = Study {
    name: "etcd before 3.4.9",
    setup: "the machines of 3.4.9; logins stayed below 16/s, with 200 connections their p99 was 18 s",
    members: 3,
};
static ETCD_3_4_9: Study = Study {
    name: "etcd 3.4.9",
    setup: "three members of 8 cores, 16 GB and SSD, client of 16 cores and 32 GB, round trip 0.1 - 0.2 ms; p99 of logins \
            below 1 s",
    members: 3,
};
static ETCD_3_4_13: Study = Study {
    name: "etcd 3.4.13",
    setup: "one member with 32 cores, heartbeat 200 ms, election 2000 ms, snapshot count 5000, retention 1 h; 75 to 89 MB of \
            memory with 1,000 clients",
    members: 1,
};
static ETCD_3_4_13_IONICE: Study =
    Study { name: "etcd 3.4.13, ionice", setup: "the same member after `ionice -c2 -n0`", members: 1 };

/// Table, subject of the row, clients, and the figures: study, rate, mean in ms (0: unknown), memory in MB (0:
/// unknown). Older studies come first, and tuned clusters before untuned ones: a run is compared with the last figure.
type Line = (&'static str, &'static str, u64, &'static [(&'static Study, f64, f64, u64)]);

static LINES: [Line; 10] = [
    (
        "write",
        "leader",
        1,
        &[
            (&ETCD_3_0, 525.0, 2.0, 35),
            (&ETCD_3_2, 583.0, 1.6, 48),
            (&ETCD_3_4_13_IONICE, 1_382.0, 0.0, 24),
            (&ETCD_3_4_13, 1_359.0, 0.0, 24),
        ],
    ),
    (
        "write",
        "leader",
        1000,
        &[
            (&ETCD_3_0, 25_000.0, 30.0, 35),
            (&ETCD_3_2, 44_341.0, 22.0, 124),
            (&ETCD_3_4_13_IONICE, 28_381.0, 0.0, 0),
            (&ETCD_3_4_13, 27_507.0, 0.0, 0),
        ],
    ),
    (
        "write",
        "all",
        1000,
        &[
            (&ETCD_3_0, 33_000.0, 25.0, 35),
            (&ETCD_3_2, 50_104.0, 20.0, 126),
            (&ETCD_3_4_13_IONICE, 27_855.0, 0.0, 0),
            (&ETCD_3_4_13, 27_206.0, 0.0, 0),
        ],
    ),
    (
        "read",
        "linearizable",
        1,
        &[
            (&ETCD_3_0, 560.0, 2.0, 0),
            (&ETCD_3_2, 1_353.0, 0.7, 0),
            (&ETCD_3_4_13_IONICE, 1_272.0, 0.0, 24),
            (&ETCD_3_4_13, 1_110.0, 0.0, 24),
        ],
    ),
    (
        "read",
        "serializable",
        1,
        &[
            (&ETCD_3_0, 7_500.0, 0.4, 0),
            (&ETCD_3_2, 2_909.0, 0.3, 0),
            (&ETCD_3_4_13_IONICE, 1_432.0, 0.0, 24),
            (&ETCD_3_4_13, 1_251.0, 0.0, 24),
        ],
    ),
    (
        "read",
        "linearizable",
        1000,
        &[
            (&ETCD_3_0, 43_000.0, 15.0, 0),
            (&ETCD_3_2, 141_578.0, 5.5, 0),
            (&ETCD_3_4_9, 190_000.0, 4.9, 0),
            (&ETCD_3_4_13_IONICE, 13_108.0, 0.0, 0),
            (&ETCD_3_4_13, 9_532.0, 0.0, 0),
        ],
    ),
    (
        "read",
        "serializable",
        1000,
        &[
            (&ETCD_3_0, 93_000.0, 9.0, 0),
            (&ETCD_3_2, 185_758.0, 2.2, 0),
            (&ETCD_3_4_9, 320_000.0, 2.5, 0),
            (&ETCD_3_4_13_IONICE, 16_088.0, 0.0, 0),
            (&ETCD_3_4_13, 11_354.0, 0.0, 0),
        ],
    ),
    ("large", "range", 1000, &[(&ETCD_3_4_9, 1_163.0, 818.0, 0)]),
    ("auth", "", 1, &[(&ETCD_BEFORE_3_4_9, 16.0, 0.0, 0)]),
    ("auth", "", 200, &[(&ETCD_BEFORE_3_4_9, 8.0, 0.0, 0), (&ETCD_3_4_9, 200.0, 0.0, 0)]),
];

/// Rows of which only an upper bound was published: table, clients, study.
static BOUNDS: [(&str, u64, &Study); 1] = [("auth", 1, &ETCD_BEFORE_3_4_9)];

/// The published figures for a row of these tables.
pub(super) fn figures(row: &Row) -> Vec<Figure> {
    let about = match row.table.as_str() {
        "write" => "target",
        "read" => "consistency",
        "large" => "operation",
        _ => "",
    };
    let (about, clients) = (row.parameters.text(about).unwrap_or_default(), row.parameters.count("clients"));
    let line = LINES.iter().find(|(table, own, of, _)| *table == row.table && *own == about && Some(*of) == clients);
    let told = line.map_or(&[][..], |(.., told)| told);
    told.iter()
        .map(|&(study, rate, mean_ms, memory_mb)| Figure {
            study,
            rate,
            is_bound: BOUNDS.iter().any(|&(table, of, own)| table == row.table && Some(of) == clients && own == study),
            mean_us: (mean_ms > 0.0).then_some(mean_ms * 1e3),
            memory_bytes: (memory_mb > 0).then_some(memory_mb * 1_000_000),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::nearest;
    use crate::runfile::{Measured, Parameters};

    #[test]
    fn rows_have_all_that_was_published() {
        let row = |table: &str, about: (&str, &str), clients: u64| {
            let parameters = Parameters::default().with(about.0, about.1).with("clients", clients);
            Row { table: table.into(), parameters, result: Measured::default() }
        };
        let rates = |row: &Row| figures(row).iter().map(|figure| (figure.study.name, figure.rate)).collect::<Vec<_>>();
        let read = row("read", ("consistency", "serializable"), 1000);
        assert!(rates(&read).contains(&("etcd 3.4.13, ionice", 16_088.0)), "{:?}", rates(&read));
        assert_eq!(nearest(&read, 1).map(|figure| figure.rate), Some(11_354.0), "without `ionice`");
        assert_eq!(nearest(&read, 3).map(|figure| figure.rate), Some(320_000.0));
        let auth = row("auth", ("user", "root"), 200);
        assert_eq!(rates(&auth), [("etcd before 3.4.9", 8.0), ("etcd 3.4.9", 200.0)]);
        let words = |row: &Row| figures(row).iter().map(Figure::rate_words).collect::<Vec<_>>();
        assert_eq!(words(&auth), ["8", "200"]);
        assert_eq!(words(&row("auth", ("user", "root"), 1)), ["< 16"], "nobody has measured 16");
        assert_eq!(LINES.iter().flat_map(|line| line.3).filter(|figure| figure.0 == &ETCD_3_4_13_IONICE).count(), 7);
    }
}
