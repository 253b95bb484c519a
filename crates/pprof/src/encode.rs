//! Samples in the form that `go tool pprof` reads, `profile.proto`. It has no names of functions: pprof finds them in the binary, to
//! which the mappings refer.

use api::varint;
use std::collections::BTreeMap;
use std::time::Duration;

/// A piece of a file that is mapped as code.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    begin: u64,
    end: u64,
    offset: u64,
    file: String,
}

/// The profile of `samples`, each of which is worth `period` of the processor's time.
pub(super) fn profile(samples: &[u64], maps: &str, period: Duration, lasted: Duration, at_ns: u64) -> Vec<u8> {
    let mappings: Vec<Mapping> = maps.lines().filter_map(mapping).collect();
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for place in samples {
        let count = counts.entry(*place).or_default();
        *count = count.saturating_add(1);
    }
    let mut strings = vec!["", "samples", "count", "cpu", "nanoseconds"];
    let mut out = Vec::new();
    message(&mut out, 1, |kind| numbers(kind, &[(1, 1), (2, 2)]));
    message(&mut out, 1, |kind| numbers(kind, &[(1, 3), (2, 4)]));
    let period_ns = period.as_nanos() as u64;
    for (id, count) in (1..).zip(counts.values()) {
        message(&mut out, 2, |sample| numbers(sample, &[(1, id), (2, *count), (2, count.saturating_mul(period_ns))]));
    }
    for (id, mapping) in (1..).zip(&mappings) {
        let name = strings.len() as u64;
        strings.push(&mapping.file);
        let Mapping { begin, end, offset, .. } = *mapping;
        message(&mut out, 3, |to| numbers(to, &[(1, id), (2, begin), (3, end), (4, offset), (5, name)]));
    }
    for (id, place) in (1..).zip(counts.keys()) {
        let within = mappings.iter().position(|mapping| (mapping.begin..mapping.end).contains(place));
        let mapping = within.map_or(0, |place| (place as u64).saturating_add(1));
        message(&mut out, 4, |location| numbers(location, &[(1, id), (2, mapping), (3, *place)]));
    }
    for string in strings {
        message(&mut out, 6, |to| to.extend_from_slice(string.as_bytes()));
    }
    numbers(&mut out, &[(9, at_ns), (10, lasted.as_nanos() as u64)]);
    message(&mut out, 11, |kind| numbers(kind, &[(1, 3), (2, 4)]));
    numbers(&mut out, &[(12, period_ns)]);
    out
}

/// A line of `/proc/self/maps`, if it is code of a file.
fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (begin, end) = words.next()?.split_once('-')?;
    let is_code = words.next()?.contains('x');
    let offset = words.next()?;
    let file = words.nth(2).filter(|file| file.starts_with('/') && is_code)?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    Some(Mapping { begin: number(begin)?, end: number(end)?, offset: number(offset)?, file: file.into() })
}

/// A field that is a message, or text.
fn message(out: &mut Vec<u8>, number: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut content = Vec::new();
    fill(&mut content);
    varint::put_bytes(out, number, &content);
}

/// Fields that are numbers.
fn numbers(out: &mut Vec<u8>, fields: &[(u32, u64)]) {
    for &(number, value) in fields {
        varint::put_number(out, number, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_files_is_found_in_the_map() {
        let line = "7f00a000-7f00b000 r-xp 00001000 08:01 1234                       /usr/bin/cairn";
        let wanted = Mapping { begin: 0x7f00_a000, end: 0x7f00_b000, offset: 0x1000, file: "/usr/bin/cairn".into() };
        assert_eq!(mapping(line), Some(wanted));
        for line in
            ["7f00a000-7f00b000 r--p 00001000 08:01 1234 /usr/bin/cairn", "7f00a000-7f00b000 rwxp 0 00:00 0", "x"]
        {
            assert_eq!(mapping(line), None, "{line}");
        }
    }
}
