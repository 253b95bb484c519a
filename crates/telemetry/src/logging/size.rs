//! Sizes for people.

/// A number of bytes as etcd's lines have it: `20 kB`, `2.1 GB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 10 {
        return format!("{bytes} B");
    }
    let (mut unit, mut scale) = (0, 1.0);
    while bytes as f64 / scale >= 1000.0 && unit + 1 < UNITS.len() {
        scale *= 1000.0;
        unit += 1;
    }
    let value = (bytes as f64 / scale * 10.0 + 0.5).floor() / 10.0;
    if value < 10.0 { format!("{value:.1} {}", UNITS[unit]) } else { format!("{value:.0} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_two_digits_or_more() {
        for (bytes, shown) in [
            (0, "0 B"),
            (999, "999 B"),
            (20_480, "20 kB"),
            (1_000, "1.0 kB"),
            (2_147_483_648, "2.1 GB"),
            (u64::MAX, "18 EB"),
        ] {
            assert_eq!(size(bytes), shown);
        }
    }
}
