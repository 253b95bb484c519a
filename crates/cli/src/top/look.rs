//! A member's page of metrics, and what happened between two of them.

use std::collections::HashMap;

/// Series that are kept of a page: one has some thousands.
const SERIES_MAX: usize = 50_000;

/// The values of a page, by series: name and labels as they are written there.
#[derive(Clone, Debug, Default)]
pub(super) struct Look(HashMap<String, f64>);

impl Look {
    pub(super) fn read(page: &str) -> Look {
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        let values = lines.filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            Some((series.to_string(), value.parse::<f64>().ok().filter(|value| value.is_finite())?))
        });
        Look(values.take(SERIES_MAX).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of one series.
    pub(super) fn value(&self, series: &str) -> Option<f64> {
        self.0.get(series).copied()
    }

    /// The sum over all labels of a family, of those with this part.
    fn sum(&self, family: &str, label: &str) -> f64 {
        let of = |series: &&String| of_family(series, family).is_some_and(|labels| labels.contains(label));
        self.0.keys().filter(of).filter_map(|series| self.0.get(series)).sum()
    }

    /// How much a counter has grown since `before`; one that has begun anew has grown from zero.
    pub(super) fn growth(&self, before: &Look, family: &str, label: &str) -> f64 {
        let (now, then) = (self.sum(family, label), before.sum(family, label));
        if now < then { now } else { now - then }
    }

    /// What the values of a label are in a family.
    pub(super) fn labels(&self, family: &str, label: &str) -> Vec<String> {
        let key = format!("{label}=\"");
        let of = |series: &String| {
            let (_, rest) = of_family(series, family)?.split_once(&key)?;
            Some(rest.split('"').next()?.to_string())
        };
        let mut found: Vec<String> = self.0.keys().filter_map(of).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The upper bound of the bucket below which 99 % of what came since `before` lie, in seconds; of the open bucket the largest bound.
    pub(super) fn p99(&self, before: &Look, family: &str, label: &str) -> Option<f64> {
        let buckets = self.growths(before, family, label);
        let all = buckets.last().map(|(_, count)| *count).filter(|count| *count > 0.0)?;
        let bound = buckets.iter().find(|(_, count)| *count >= 0.99 * all).map(|(bound, _)| *bound)?;
        let largest = buckets.iter().rev().find(|(bound, _)| bound.is_finite()).map(|(bound, _)| *bound);
        if bound.is_finite() { Some(bound) } else { largest }
    }

    /// How many since `before` took longer than about so many seconds.
    pub(super) fn longer(&self, before: &Look, family: &str, label: &str, seconds: f64) -> f64 {
        let buckets = self.growths(before, family, label);
        let all = buckets.last().map_or(0.0, |(_, count)| *count);
        let within = buckets.iter().find(|(bound, _)| *bound >= seconds).map_or(all, |(_, count)| *count);
        (all - within).max(0.0)
    }

    /// Bounds of a histogram and how many came below each, in the order of the bounds.
    fn growths(&self, before: &Look, family: &str, label: &str) -> Vec<(f64, f64)> {
        let family = format!("{family}_bucket");
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for (series, now) in &self.0 {
            let Some(labels) = of_family(series, &family).filter(|labels| labels.contains(label)) else { continue };
            let Some(bound) = labels.split("le=\"").nth(1).and_then(|rest| rest.split('"').next()) else { continue };
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap_or(f64::INFINITY) };
            let then = before.value(series).filter(|then| then <= now).unwrap_or_default();
            match buckets.iter_mut().find(|(known, _)| *known == bound) {
                Some((_, count)) => *count += now - then,
                None => buckets.push((bound, now - then)),
            }
        }
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        buckets
    }
}

/// The labels of a series, if it is of this family.
fn of_family<'a>(series: &'a str, family: &str) -> Option<&'a str> {
    let labels = series.strip_prefix(family)?;
    (labels.is_empty() || labels.starts_with('{')).then_some(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(fast: u32, slow: u32, puts: u32) -> Look {
        let all = fast + slow;
        Look::read(&format!(
            "# HELP puts a help\nputs_total {puts}\nputs_total_of_others 99\nby{{kind=\"a\"}} 1\nby{{kind=\"b\"}} {puts}\n\
             took_bucket{{type=\"Put\",le=\"0.1\"}} {fast}\ntook_bucket{{type=\"Put\",le=\"0.2\"}} {all}\n\
             took_bucket{{type=\"Put\",le=\"+Inf\"}} {all}\ntook_bucket{{type=\"Range\",le=\"+Inf\"}} 5\nnonsense\nodd NaN\n"
        ))
    }

    #[test]
    fn what_happened_between_two_looks() {
        let (before, now) = (page(10, 0, 5), page(110, 0, 9));
        assert_eq!((now.growth(&before, "puts_total", ""), now.value("puts_total")), (4.0, Some(9.0)));
        assert_eq!(now.growth(&before, "by", "kind=\"b\""), 4.0);
        assert_eq!(before.growth(&now, "puts_total", ""), 5.0, "the member was started again");
        assert_eq!(now.p99(&before, "took", "type=\"Put\""), Some(0.1));
        assert_eq!(page(110, 5, 9).p99(&before, "took", "type=\"Put\""), Some(0.2));
        assert_eq!(before.p99(&before, "took", "type=\"Put\""), None);
        assert_eq!(page(10, 3, 0).longer(&before, "took", "type=\"Put\"", 0.1), 3.0);
        assert_eq!(now.labels("by", "kind"), ["a", "b"]);
        assert!(Look::read("").is_empty() && now.value("odd").is_none());
    }
}
