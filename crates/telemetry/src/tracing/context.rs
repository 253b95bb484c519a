//! The trace that a call belongs to (W3C trace context), and whether to sample it.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Of a `tracestate`, more is not carried on.
const STATE_BYTES_MAX: usize = 512;

/// Draws ids of traces and spans.
#[derive(Default)]
pub(super) struct Ids {
    keys: RandomState,
    drawn: AtomicU64,
}

impl Ids {
    /// A random number that is not 0.
    pub(super) fn draw(&self) -> u64 {
        self.keys.hash_one(self.drawn.fetch_add(1, Ordering::Relaxed)).max(1)
    }
}

/// What the caller says of its trace: the headers of W3C trace context, as far as they are text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parent<'a> {
    /// Trace and span of the caller, and whether they are sampled.
    pub traceparent: Option<&'a str>,
    /// What tracing systems on the way have added.
    pub tracestate: Option<&'a str>,
}

/// The place of a span in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Context {
    pub(super) trace: u128,
    /// The span that called, 0 for none.
    pub(super) parent: u64,
    pub(super) state: String,
}

impl Context {
    /// The context of a call that is sampled: as its caller decided, or by chance if there is none.
    pub(super) fn of(caller: Parent<'_>, ids: &Ids, samples_per_million: u32) -> Option<Context> {
        if let Some((trace, parent, sampled)) = caller.traceparent.and_then(parse) {
            let state = caller.tracestate.unwrap_or_default();
            let state = if state.len() <= STATE_BYTES_MAX { state } else { "" };
            return sampled.then(|| Context { trace, parent, state: state.into() });
        }
        if ids.draw() % 1_000_000 >= u64::from(samples_per_million) {
            return None;
        }
        let trace = u128::from(ids.draw()) << 64 | u128::from(ids.draw());
        Some(Context { trace, parent: 0, state: String::new() })
    }
}

/// Trace, span and whether it is sampled, from a `traceparent`: version, trace, parent and flags in lower-case hexadecimal.
fn parse(text: &str) -> Option<(u128, u64, bool)> {
    let mut parts = text.split('-');
    let mut part = |len: usize| {
        let part = parts.next()?;
        let is_hex = part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (part.len() == len && is_hex).then_some(part)
    };
    let (version, trace, parent, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
    // A later version may have more after its flags, this one may not.
    if version == "ff" || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
    let parent = u64::from_str_radix(parent, 16).ok().filter(|parent| *parent != 0)?;
    Some((trace, parent, u8::from_str_radix(flags, 16).ok()? & 1 == 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_parent_is_read_or_nothing_is() {
        let trace = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c;
        assert_eq!(parse(TRACE), Some((trace, 0xb7ad_6b71_6920_3331, true)));
        assert_eq!(parse(&TRACE.replace("-01", "-00")), Some((trace, 0xb7ad_6b71_6920_3331, false)));
        assert_eq!(parse(&TRACE.replacen("00", "01", 1).replace("-01", "-01-more")), parse(TRACE));
        for bad in ["", "00", &TRACE.to_uppercase(), &format!("{TRACE}-x"), &TRACE.replacen("00", "ff", 1)] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(parse("00-00000000000000000000000000000000-b7ad6b7169203331-01"), None);
        assert_eq!(parse("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"), None);
    }

    #[test]
    fn callers_decide_and_chance_else() {
        let ids = Ids::default();
        fn with(parent: &str) -> Parent<'_> {
            Parent { traceparent: Some(parent), tracestate: None }
        }
        assert!(Context::of(with(TRACE), &ids, 0).is_some());
        assert!(Context::of(with(&TRACE.replace("-01", "-00")), &ids, 1_000_000).is_none());
        let none = Parent::default();
        assert!(Context::of(none, &ids, 0).is_none());
        assert!(Context::of(none, &ids, 1_000_000).is_some());
        let sampled = (0..10_000).filter(|_| Context::of(none, &ids, 100_000).is_some()).count();
        assert!((800..1200).contains(&sampled), "{sampled} of 10,000");
    }
}
