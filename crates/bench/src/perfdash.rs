//! Percentiles in the form that Kubernetes' perfdash reads, in files named as those of etcd's tool.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::BenchError;
use crate::histogram::Histogram;

/// Where the files go if `$ARTIFACTS` does not say it.
const FOLDER: &str = "./_artifacts";

/// Writes the percentiles of a load; returns the path of the file.
pub(crate) fn write(load: &str, latency: &Histogram) -> Result<PathBuf, BenchError> {
    let ms = |share: f64| (latency.quantile_us(share) * 10.0).round() / 10_000.0;
    let report = serde_json::json!({
        "version": "v1",
        "dataItems": [{
            "data": { "Perc50": ms(0.5), "Perc90": ms(0.9), "Perc99": ms(0.99) },
            "labels": { "Operation": load.to_uppercase() },
            "unit": "ms",
        }],
    });
    let folder = std::env::var("ARTIFACTS").ok().filter(|folder| !folder.is_empty());
    let folder = PathBuf::from(folder.unwrap_or_else(|| FOLDER.into()));
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let path = folder.join(format!("EtcdAPI_benchmark_{load}_{}.json", day_and_time(seconds)));
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, format!("{report:#}")));
    written.map_err(|error| BenchError::Io(format!("cannot write `{}`", path.display()), error))?;
    Ok(path)
}

/// Seconds since 1970 as day and time in UTC.
fn day_and_time(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years from March on, so that the odd day is the last one; eras of 400 years are all alike.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year_of_era + next_year;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(day_and_time(0), "1970-01-01T00:00:00Z");
        assert_eq!(day_and_time(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(day_and_time(1_795_331_085), "2026-11-22T07:04:45Z");
    }
}
