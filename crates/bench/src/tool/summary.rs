//! What a run has shown, in the words and the form of etcd's `benchmark`.

use std::fmt::Write;
use std::time::Duration;

use flags::duration_text;

use crate::meter::Meter;

/// Shares of the distribution, in percent.
const SHARES: [f64; 8] = [10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9];
/// Number of rows of the histogram minus one.
const STEPS: usize = 10;
/// The longest bar.
const BAR: u64 = 40;

/// The report of the measurements in `time`. With `precise`, numbers have all their digits.
pub(crate) fn text(meter: &Meter, time: Duration, precise: bool) -> String {
    weighted(meter, time, 1, precise)
}

/// The report of requests that count as `weight` each.
pub(crate) fn weighted(meter: &Meter, time: Duration, weight: u64, precise: bool) -> String {
    let mut out = String::new();
    if meter.latency.total() > 0 {
        put(&mut out, meter, time, weight, precise);
    }
    if !meter.texts.is_empty() {
        out.push_str("\nError distribution:\n");
        for (text, count) in &meter.texts {
            line(&mut out, format_args!("  [{count}]\t{text}"));
        }
    }
    out
}

fn put(out: &mut String, meter: &Meter, time: Duration, weight: u64, precise: bool) {
    let latency = &meter.latency;
    let number = |number: f64| if precise { general(number) } else { format!("{number:.4}") };
    out.push_str("\nSummary:\n");
    for (name, seconds) in [
        ("Total", time.as_secs_f64()),
        ("Slowest", latency.max_us() / 1e6),
        ("Fastest", latency.min_us() / 1e6),
        ("Average", latency.mean_us() / 1e6),
        ("Stddev", latency.deviation_ns() / 1e9),
    ] {
        line(out, format_args!("  {name}:\t{} secs.", number(seconds)));
    }
    let rate = latency.total() as f64 * weight as f64 / time.as_secs_f64().max(1e-9);
    line(out, format_args!("  Requests/sec:\t{}", number(rate)));
    out.push_str("\nResponse time histogram:\n");
    let rows = rows(meter);
    let most = rows.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    for (bound, count) in rows {
        let bar = "∎".repeat((u128::from(count) * u128::from(BAR) / u128::from(most)) as usize);
        line(out, format_args!("  {} [{count}]\t|{bar}", number(bound)));
    }
    out.push_str("\nLatency distribution:\n");
    for (share, ns) in distribution(meter) {
        line(out, format_args!("  {share}% in {} secs.", number(ns as f64 / 1e9)));
    }
    if let Some(series) = &meter.series {
        out.push_str("\nSample in one second (unix latency throughput):\n");
        out.push_str("UNIX-SECOND,MIN-LATENCY-MS,AVG-LATENCY-MS,MAX-LATENCY-MS,AVG-THROUGHPUT\n");
        for (at, second) in series.iter() {
            let average = second.sum.checked_div(u32::try_from(second.count).unwrap_or(u32::MAX)).unwrap_or_default();
            let [least, average, most] = [second.least, average, second.most].map(duration_text);
            line(out, format_args!("{at},{least},{average},{most},{}", second.count));
        }
        out.push('\n');
    }
}

/// Writing to a string cannot fail.
fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = writeln!(out, "{text}");
}

/// The histogram: upper bounds in seconds, each with the number of latencies between it and the bound before.
fn rows(meter: &Meter) -> Vec<(f64, u64)> {
    let (least, most) = (meter.latency.min_us() / 1e6, meter.latency.max_us() / 1e6);
    let bound = |step: usize| if step == STEPS { most } else { least + (most - least) / STEPS as f64 * step as f64 };
    let mut rows: Vec<(f64, u64)> = (0..=STEPS).map(|step| (bound(step), 0)).collect();
    let mut row = 0;
    for (ns, count) in meter.latency.steps() {
        while row < STEPS && ns as f64 / 1e9 > rows[row].0 {
            row += 1;
        }
        rows[row].1 += count;
    }
    rows
}

/// The percentiles in nanoseconds. Percentiles for which there are too few latencies, and those of 0, are left out.
fn distribution(meter: &Meter) -> Vec<(f64, u64)> {
    let total = meter.latency.total();
    let mut found = Vec::new();
    let (mut seen, mut next) = (0, 0);
    let mut shares = SHARES.into_iter().peekable();
    for (ns, count) in meter.latency.steps() {
        seen += count;
        while let Some(&share) = shares.peek() {
            // Counted from 0; each share has a latency of its own.
            let place = ((share * total as f64 / 100.0).ceil() as u64).max(next);
            if place >= seen {
                break;
            }
            next = place + 1;
            shares.next();
            if ns > 0 {
                found.push((share, ns));
            }
        }
    }
    found
}

/// A number with all its digits, as Go's `%g` writes it.
fn general(number: f64) -> String {
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(-4..=5) => format!("{number}"),
        Ok(exponent) => format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
        Err(_) => scientific,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Series;
    use rpc::Status;
    use std::time::Instant;

    fn meter(latencies_us: impl IntoIterator<Item = u64>) -> Meter {
        let (mut meter, begin) = (Meter::default(), Instant::now());
        for us in latencies_us {
            meter.count(&Status::OK, Ok(()), begin, begin + Duration::from_micros(us));
        }
        meter
    }

    #[test]
    fn reports_look_like_etcds() {
        let mut meter = meter([1_000, 2_000, 3_000, 11_000]);
        meter.fail(&Status::new(api::Code::Unavailable, "gone"));
        meter.fail(&api::Error::NoSpace.into());
        let wanted = "\nSummary:\n  Total:\t2.0000 secs.\n  Slowest:\t0.0110 secs.\n  Fastest:\t0.0010 secs.\n  Average:\t0.0043 secs.\n  \
                      Stddev:\t0.0040 secs.\n  Requests/sec:\t2.0000\n\nResponse time histogram:\n  0.0010 [1]\t|∎∎∎∎∎∎∎∎∎∎∎∎∎∎∎∎∎∎∎∎";
        let text = text(&meter, Duration::from_secs(2), false);
        assert!(text.starts_with(wanted), "{text}");
        let end = "\nLatency distribution:\n  10% in 0.0020 secs.\n  25% in 0.0030 secs.\n  50% in 0.0110 secs.\n\nError distribution:\n  \
                   [1]\tetcdserver: mvcc: database space exceeded\n  [1]\trpc error: code = Unavailable desc = gone\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn rows_and_shares_have_every_latency_once() {
        let meter = meter((1..=1000).map(|us| us * 10));
        let rows = rows(&meter);
        assert_eq!(rows.len(), 11);
        assert_eq!((rows[0].1, rows.iter().map(|row| row.1).sum::<u64>()), (1, 1000));
        assert!(rows[1..].iter().all(|row| row.1.abs_diff(100) < 3), "{rows:?}");
        let found = distribution(&meter);
        for (share, ns) in &found {
            assert!((*ns as f64 / 1e5 - share).abs() < 0.5, "{share} {ns}");
        }
        assert_eq!(found.len(), 8);
        assert_eq!(distribution(&self::meter([5, 6, 7])).len(), 2);
        assert!(distribution(&self::meter([5])).is_empty());
        assert_eq!(text(&Meter::default(), Duration::from_secs(1), false), "");
    }

    #[test]
    fn seconds_are_told_apart() {
        let begin = Instant::now();
        let mut meter = Meter { series: Some(Series::default()), ..Meter::default() };
        meter.count(&Status::OK, Ok(()), begin, begin + Duration::from_nanos(1_500_000));
        let text = text(&meter, Duration::from_secs(1), true);
        assert!(text.ends_with(",1.5ms,1.5ms,1.5ms,1\n\n"), "{text}");
        assert!(text.contains("  Average:\t0.0015 secs.\n"), "{text}");
    }

    #[test]
    fn numbers_are_gos() {
        for (number, wanted) in [
            (0.0, "0"),
            (123_456.0, "123456"),
            (1_234_567.0, "1.234567e+06"),
            (1e21, "1e+21"),
            (0.0001, "0.0001"),
            (0.000_012_34, "1.234e-05"),
            (253_241.37, "253241.37"),
        ] {
            assert_eq!(general(number), wanted);
        }
    }
}
