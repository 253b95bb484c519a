//! What servers say of themselves under `/metrics`.

use bench::Place;

use super::http;

/// The metrics of one process at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Look {
    /// When the process was started: another time means another process.
    started: Option<f64>,
    cpu_seconds: Option<f64>,
    memory_bytes: Option<f64>,
    pub(super) quota_bytes: Option<u64>,
    pub(super) files_max: Option<u64>,
    /// Mean of all syncs of the log so far.
    pub(super) sync_mean_us: Option<f64>,
    /// The version of Go, if the server is the genuine etcd.
    pub(super) go_version: Option<String>,
}

/// The resources that processes used between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Use {
    /// Processor time of all together. `None` if one could not be read, or is another process now.
    pub(super) cpu_seconds: Option<f64>,
    /// Memory of the process that has most.
    pub(super) memory_bytes: Option<u64>,
}

/// Reads the metrics of all of `places`; `None` for one that could not be read.
pub(super) async fn look(places: &[Place]) -> Vec<Option<Look>> {
    let mut looks = Vec::new();
    for place in places {
        looks.push(http::page(place, "/metrics").await.ok().map(|page| read(&page)));
    }
    looks
}

/// The difference of two looks.
pub(super) fn used(before: &[Option<Look>], after: &[Option<Look>]) -> Use {
    let cpu = |(before, after): (&Option<Look>, &Option<Look>)| {
        let (before, after) = (before.as_ref()?, after.as_ref()?);
        let is_same = before.started == after.started;
        is_same.then_some(after.cpu_seconds? - before.cpu_seconds?).filter(|seconds| *seconds >= 0.0)
    };
    let is_seen = !after.is_empty() && before.len() == after.len();
    let seconds: Option<f64> = before.iter().zip(after).map(cpu).sum();
    let memory = after.iter().flatten().filter_map(|look| look.memory_bytes).max_by(f64::total_cmp);
    Use { cpu_seconds: seconds.filter(|_| is_seen), memory_bytes: memory.map(|bytes| bytes as u64) }
}

/// Reads the needed metrics from the text format of Prometheus.
fn read(page: &str) -> Look {
    let mut look = Look::default();
    let (mut sync_seconds, mut syncs) = (None, None);
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, value)) = line.rsplit_once(' ') else { continue };
        let number = || value.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
        match name {
            "process_start_time_seconds" => look.started = number(),
            "process_cpu_seconds_total" => look.cpu_seconds = number(),
            "process_resident_memory_bytes" => look.memory_bytes = number(),
            "process_max_fds" => look.files_max = number().map(|number| number as u64),
            "etcd_server_quota_backend_bytes" => look.quota_bytes = number().map(|number| number as u64),
            "etcd_disk_wal_fsync_duration_seconds_sum" => sync_seconds = number(),
            "etcd_disk_wal_fsync_duration_seconds_count" => syncs = number(),
            _ => {
                let labels = name.strip_prefix("etcd_server_go_version{server_go_version=\"");
                look.go_version =
                    labels.and_then(|rest| rest.strip_suffix("\"}")).map(str::to_owned).or(look.go_version);
            }
        }
    }
    let mean = sync_seconds.zip(syncs).filter(|(_, syncs)| *syncs > 0.0).map(|(seconds, syncs)| seconds / syncs * 1e6);
    Look { sync_mean_us: mean, ..look }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP process_cpu_seconds_total x\nprocess_cpu_seconds_total 1.5\nprocess_resident_memory_bytes 2.5e+07\n\
        process_start_time_seconds 7\netcd_server_go_version{server_go_version=\"go1.25\"} 1\n\
        etcd_server_quota_backend_bytes 2.147483648e+09\netcd_disk_wal_fsync_duration_seconds_sum 0.5\n\
        etcd_disk_wal_fsync_duration_seconds_count 1000\nprocess_max_fds NaN\n";

    #[test]
    fn what_was_used_is_the_difference_of_the_same_process() {
        let look = read(PAGE);
        assert_eq!((look.quota_bytes, look.sync_mean_us, look.files_max), (Some(2 << 30), Some(500.0), None));
        assert_eq!(look.go_version.as_deref(), Some("go1.25"));
        let later = Look { cpu_seconds: Some(4.0), memory_bytes: Some(9.0), ..look.clone() };
        let both = used(&[Some(look.clone()), Some(look.clone())], &[Some(later.clone()), Some(look.clone())]);
        assert_eq!(both, Use { cpu_seconds: Some(2.5), memory_bytes: Some(25_000_000) });
        let other = Look { started: Some(8.0), ..later };
        assert_eq!(used(&[Some(look.clone())], &[Some(other)]).cpu_seconds, None);
        assert_eq!(used(&[Some(look)], &[None]), Use::default());
        assert_eq!(used(&[], &[]), Use::default());
    }
}
