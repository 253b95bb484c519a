//! Setting points by name.

use crate::Point;
use crate::points::ALL;
use crate::terms::Terms;

/// Why a point was not set. The texts are gofail's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no point of this name.
    Unknown,
    /// It is not set.
    Unset,
    /// The terms cannot be read.
    Terms,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Refusal::Unknown => "failpoint: failpoint does not exist",
            Refusal::Unset => "failpoint: failpoint is disabled",
            Refusal::Terms => "failpoint: could not parse terms",
        })
    }
}

pub(crate) fn find(name: &str) -> Result<&'static Point, Refusal> {
    ALL.iter().find(|point| point.name() == name).copied().ok_or(Refusal::Unknown)
}

pub(crate) fn set(name: &str, terms: &str) -> Result<(), Refusal> {
    let point = find(name)?;
    point.set(Terms::read(terms).ok_or(Refusal::Terms)?);
    Ok(())
}

pub(crate) fn unset(name: &str) -> Result<(), Refusal> {
    if find(name)?.unset() { Ok(()) } else { Err(Refusal::Unset) }
}

/// Sets `name=terms;name=terms`. All of them, or up to the first that cannot be set.
pub(crate) fn set_all(text: &str) -> Result<(), String> {
    for part in text.split(';').filter(|part| !part.is_empty()) {
        let Some((name, terms)) = part.split_once('=') else { return Err(format!("bad failpoint `{part}`")) };
        set(name, terms).map_err(|refusal| format!("`{part}`: {refusal}"))?;
    }
    Ok(())
}

/// Points, `name=terms` a line, in order of their names: those of `listed` (names separated by commas), or all if that is empty. So a
/// suite that draws among the listed points can be made to draw rare ones.
pub(crate) fn list(listed: &str) -> String {
    let is_listed = |point: &&&Point| listed.is_empty() || listed.split(',').any(|name| name.trim() == point.name());
    let mut lines: Vec<String> = ALL
        .iter()
        .filter(is_listed)
        .map(|point| format!("{}={}\n", point.name(), point.status().map(|(text, _)| text).unwrap_or_default()))
        .collect();
    lines.sort_unstable();
    lines.concat()
}
