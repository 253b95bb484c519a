//! From values to places.

/// A linear scale from zero, or a logarithmic scale.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    is_log: bool,
    /// Where the ends are.
    from: f64,
    to: f64,
}

/// Approximate limit of the marks on an axis.
const TICKS_MAX: usize = 7;
/// If values differ by more than this factor, the smallest cannot be told from zero on a linear scale.
const LINEAR_SPAN: f64 = 50.0;
/// Larger values are drawn as this one, so that the computations of the scale stay finite.
const VALUE_MAX: f64 = 1e290;
const VALUE_MIN: f64 = 1e-3;

impl Scale {
    /// A linear scale from zero to the largest of `values`.
    pub(super) fn linear(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Scale {
        let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max).min(VALUE_MAX);
        let most = if most > 0.0 { most } else { 1.0 };
        let step = step(most / 4.0);
        Scale { low: 0.0, high: (most / step).ceil() * step, is_log: false, from, to }
    }

    /// A logarithmic scale for all of `values` above zero.
    pub(super) fn log(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Scale {
        let (mut low, mut high) = (f64::MAX, 0.0_f64);
        for value in
            values.filter(|value| value.is_finite() && *value > 0.0).map(|value| value.clamp(VALUE_MIN, VALUE_MAX))
        {
            (low, high) = (low.min(value), high.max(value));
        }
        if high == 0.0 {
            (low, high) = (1.0, 10.0);
        }
        // Ends that are marks: 1, 2 or 5 times a power of ten.
        let (low, mut high) = (round_down(low), round_up(high));
        if high <= low * 1.01 {
            high = low * 10.0;
        }
        Scale { low, high, is_log: true, from, to }
    }

    /// A linear scale, unless small values would vanish on it.
    pub(super) fn fitting(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Scale {
        let seen = values.clone().filter(|value| value.is_finite() && *value > 0.0);
        let (low, high) = seen.fold((f64::MAX, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        if high / low > LINEAR_SPAN { Scale::log(values, from, to) } else { Scale::linear(values, from, to) }
    }

    pub(super) fn is_log(&self) -> bool {
        self.is_log
    }

    /// Whether `value` has a place on the scale.
    pub(super) fn has(&self, value: f64) -> bool {
        value.is_finite() && (value > 0.0 || (value == 0.0 && !self.is_log))
    }

    /// The place of a value that has one. Never beyond the ends.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = if self.is_log {
            (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
        } else {
            value / self.high
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// The values that get a mark.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if !self.is_log {
            let step = step(self.high / 4.0);
            return (0..=(self.high / step).round() as usize).map(|number| number as f64 * step).collect();
        }
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let decades = (last - first).max(1) as usize;
        let fine: &[f64] = match (self.high / self.low).log10() {
            ..1.3 => &[1.0, 2.0, 5.0],
            ..2.6 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let powers = (first..=last).step_by(decades.div_ceil(TICKS_MAX));
        let all = powers.flat_map(|power| fine.iter().map(move |factor| factor * 10_f64.powi(power)));
        all.filter(|value| *value >= self.low * 0.999 && *value <= self.high * 1.001).collect()
    }
}

/// The next of 1, 2 and 5 times a power of ten.
fn step(least: f64) -> f64 {
    round_up(least)
}

fn round_up(value: f64) -> f64 {
    let power = 10_f64.powi(value.log10().floor() as i32);
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|round| *round >= value * 0.999)
        .unwrap_or(value)
}

fn round_down(value: f64) -> f64 {
    let power = 10_f64.powi(value.log10().floor() as i32);
    [5.0, 2.0, 1.0].map(|factor| factor * power).into_iter().find(|round| *round <= value * 1.001).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_few_and_places_are_numbers() {
        let cases: [&[f64]; 9] = [
            &[],
            &[0.0],
            &[1.0],
            &[5.0, 5.0],
            &[0.3, 17.0],
            &[1.0, 1e6],
            &[1e-300, 1e300],
            &[f64::MAX, 1.0],
            &[f64::INFINITY, f64::NAN, -1.0],
        ];
        for values in cases {
            let scales = [
                Scale::linear(values.iter().copied(), 100.0, 0.0),
                Scale::log(values.iter().copied(), 100.0, 0.0),
                Scale::fitting(values.iter().copied(), 100.0, 0.0),
            ];
            for scale in scales {
                let ticks = scale.ticks();
                assert!((2..=TICKS_MAX + 3).contains(&ticks.len()), "{values:?} {scale:?} {ticks:?}");
                for value in ticks.iter().chain(values).filter(|value| scale.has(**value)) {
                    let place = scale.place(*value);
                    assert!((0.0..=100.0).contains(&place), "{value:e} of {values:?} is at {place}");
                }
            }
        }
        let scale = Scale::linear([0.0, 42.0].into_iter(), 100.0, 0.0);
        assert_eq!((scale.ticks(), scale.place(0.0)), (vec![0.0, 20.0, 40.0, 60.0], 100.0));
        assert!(Scale::fitting([1.0, 100.0].into_iter(), 0.0, 1.0).is_log());
        assert_eq!(Scale::log([3.0, 4_000.0].into_iter(), 0.0, 1.0).ticks(), [10.0, 100.0, 1000.0]);
    }
}
