//! The operating system's figures of this process.

use super::page::Page;

/// Appends the families. `open_files_max` is the limit of open files.
pub fn write(page: &mut Page, open_files_max: u64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Fields after the command's closing bracket, which may itself hold spaces.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    // SAFETY: plain system call.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
    // SAFETY: plain system call.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as f64;
    page.counter("process_cpu_seconds_total", "User and system time in seconds.", (field(14) + field(15)) / ticks);
    page.gauge("process_virtual_memory_bytes", "Virtual memory.", field(23));
    page.gauge("process_virtual_memory_max_bytes", "Most virtual memory that may be had.", virtual_memory_max());
    page.gauge("process_resident_memory_bytes", "Resident memory, mapped files included.", field(24) * page_bytes);
    let boot = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let boot = boot.lines().find_map(|line| line.strip_prefix("btime ")).and_then(|text| text.parse::<f64>().ok());
    page.gauge("process_start_time_seconds", "Start since the Unix epoch.", boot.unwrap_or(0.0) + field(22) / ticks);
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    page.gauge("process_open_fds", "Open file descriptors.", open);
    page.gauge("process_max_fds", "Most file descriptors that may be open.", open_files_max);
    page.gauge("os_fd_used", "Open file descriptors.", open);
    page.gauge("os_fd_limit", "Most file descriptors that may be open.", open_files_max);
    let network = std::fs::read_to_string("/proc/self/net/netstat").unwrap_or_default();
    let [received, sent] = ["InOctets", "OutOctets"].map(|name| octets(&network, name));
    page.counter("process_network_receive_bytes_total", "Bytes received in this network namespace.", received);
    page.counter("process_network_transmit_bytes_total", "Bytes sent in this network namespace.", sent);
    page.gauge("go_threads", "Threads of the process.", field(20));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    page.gauge("go_sched_gomaxprocs_threads", "Cores that may be used.", cores);
}

/// A value of the `IpExt` rows: names in one line, values in the next.
fn octets(netstat: &str, name: &str) -> u64 {
    let mut rows = netstat.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (Some(names), Some(values)) = (rows.next(), rows.next()) else { return 0 };
    let place = names.split_whitespace().position(|known| known == name);
    place.and_then(|place| values.split_whitespace().nth(place)).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The soft limit in bytes, or the value that means none.
fn virtual_memory_max() -> f64 {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max address space")?.split_whitespace().next());
    soft.and_then(|text| text.parse::<f64>().ok()).unwrap_or(u64::MAX as f64)
}

#[cfg(test)]
mod tests {
    #[test]
    fn octets_are_found_by_name() {
        let netstat = "TcpExt: A InOctets\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 300 400\n";
        assert_eq!((super::octets(netstat, "InOctets"), super::octets(netstat, "OutOctets")), (300, 400));
        assert_eq!(super::octets("", "InOctets"), 0);
    }
}
