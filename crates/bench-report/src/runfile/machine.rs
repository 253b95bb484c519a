//! The machine that the load came from.

use std::fs::read_to_string;

use serde::{Deserialize, Serialize};

/// The hardware of a machine. Zero or an empty text means unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    /// Processors that this process may use.
    pub(crate) cores: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
}

impl Machine {
    /// The machine of this process.
    pub(crate) fn here() -> Machine {
        let cpuinfo = read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = field(&meminfo, "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        let kernel = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            cpu: field(&cpuinfo, "model name").unwrap_or(std::env::consts::ARCH).to_owned(),
            cores: std::thread::available_parallelism().map_or(0, |cores| cores.get() as u64),
            memory_bytes: kib.unwrap_or(0) * 1024,
            kernel: format!("{} {}", std::env::consts::OS, kernel.trim()),
        }
    }
}

/// The text behind `name` and a colon.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(own, _)| own.trim() == name)
        .map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_known() {
        let here = Machine::here();
        assert!(here.cores > 0 && here.memory_bytes > 1 << 20 && !here.cpu.is_empty() && here.kernel.len() > 6);
    }
}
