//! `--io-priority`: the disk priority of the log's thread.

use super::ConfigError;
use super::values::{Values, unusable};

/// A priority at the disk, as Linux knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoPriority {
    /// Before everything else; 0 is the highest level, 7 the lowest.
    Realtime(u8),
    /// The usual class.
    BestEffort(u8),
    /// When no other process wants the disk.
    Idle,
}

/// What `ionice` takes when no level is given.
const LEVEL_DEFAULT: u8 = 4;

pub(super) fn read(values: &Values) -> Result<Option<IoPriority>, ConfigError> {
    let text = values.get("io-priority");
    let (class, level) = text.split_once(':').map_or((text, None), |(class, level)| (class, Some(level)));
    let why = "must be realtime:LEVEL, best-effort:LEVEL (levels 0 to 7) or idle";
    let level = match level.map(str::parse) {
        None => LEVEL_DEFAULT,
        Some(Ok(level @ 0..=7)) if class != "idle" => level,
        Some(_) => return Err(unusable("io-priority", text, why)),
    };
    match class {
        "" if text.is_empty() => Ok(None),
        "realtime" => Ok(Some(IoPriority::Realtime(level))),
        "best-effort" => Ok(Some(IoPriority::BestEffort(level))),
        "idle" => Ok(Some(IoPriority::Idle)),
        _ => Err(unusable("io-priority", text, why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_and_levels() {
        let read = |text: &str| read(&super::super::flags::parse([format!("--io-priority={text}")]).expect("read"));
        assert_eq!(read("best-effort:0").expect("valid"), Some(IoPriority::BestEffort(0)));
        assert_eq!(read("realtime").expect("valid"), Some(IoPriority::Realtime(4)));
        assert_eq!((read("idle").expect("valid"), read("").expect("valid")), (Some(IoPriority::Idle), None));
        for bad in ["best-effort:8", "idle:0", "fast", ":1", "realtime:-1", "realtime:"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
