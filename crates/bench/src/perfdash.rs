//! Percentiles in the form that Kubernetes' perfdash reads, in files named as those of etcd's tool.

use std::path::PathBuf;

use crate::BenchError;
use crate::histogram::Histogram;
use crate::utc::utc_now;

/// The folder of the files if `$ARTIFACTS` is not set.
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
    let path = folder.join(format!("EtcdAPI_benchmark_{load}_{}.json", utc_now()));
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, format!("{report:#}")));
    written.map_err(|error| BenchError::Io(format!("cannot write `{}`", path.display()), error))?;
    Ok(path)
}
