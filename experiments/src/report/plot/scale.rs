//! From values to places, with ticks at round numbers.

use crate::report::fmt;

/// How an axis is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::report) enum Kind {
    /// Equal steps.
    Linear,
    /// Equal factors; ticks at powers of two. Falls back to equal steps below a factor of two or for values ≤ 0.
    Log2,
}

/// One axis with its ticks.
pub(super) struct Scale {
    log: bool,
    lo: f64,
    hi: f64,
    from: f64,
    to: f64,
    /// Values with their labels, ascending.
    pub ticks: Vec<(f64, String)>,
}

impl Scale {
    /// Covers `lo..=hi`, drawn from `from` to `to`; linear axes are widened to whole ticks. At most `ticks` ticks or one more.
    pub fn new(kind: Kind, lo: f64, hi: f64, from: f64, to: f64, ticks: usize) -> Self {
        if kind == Kind::Log2 && lo > 0.0 && hi >= 2.0 * lo {
            return Self::log2(lo, hi, from, to, ticks);
        }
        let (lo, hi) = if hi > lo { (lo, hi) } else { (lo - 0.5 * lo.abs().max(1.0), hi + 0.5 * hi.abs().max(1.0)) };
        let step = nice((hi - lo) / ticks.max(2) as f64);
        let first = (lo / step + 1e-9).floor();
        let last = (hi / step - 1e-9).ceil();
        let count = (last - first).clamp(1.0, 40.0) as usize;
        let ticks = (0..=count).map(|i| (first + i as f64) * step).map(|v| (v, tick_label(v, step))).collect();
        Self { log: false, lo: first * step, hi: last.max(first + 1.0) * step, from, to, ticks }
    }

    fn log2(lo: f64, hi: f64, from: f64, to: f64, ticks: usize) -> Self {
        let (first, last) = (lo.log2().floor() as i32, hi.log2().ceil() as i32);
        let stride = ((last - first) as usize).div_ceil(ticks.max(2)).max(1);
        // Five per cent of air on both sides keeps marks off the frame.
        let air = 0.06 * (hi.log2() - lo.log2());
        let (lo, hi) = ((lo.log2() - air).exp2(), (hi.log2() + air).exp2());
        let ticks = (first..=last)
            .step_by(stride)
            .map(|e| f64::from(e).exp2())
            .filter(|v| (lo..=hi).contains(v))
            .map(|v| (v, fmt::short(v).trim_end_matches(".00").trim_end_matches(".0").to_owned()))
            .collect();
        Self { log: true, lo, hi, from, to, ticks }
    }

    /// Linear over exactly `lo..=hi`, with the given ticks where they lie inside.
    pub fn exact(lo: f64, hi: f64, from: f64, to: f64, ticks: &[(f64, String)]) -> Self {
        let ticks = ticks.iter().filter(|(v, _)| (lo..=hi).contains(v)).cloned().collect();
        Self { log: false, lo, hi: if hi > lo { hi } else { lo + 1.0 }, from, to, ticks }
    }

    /// Where a value is drawn, kept inside the frame.
    pub fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(f64::MIN_POSITIVE).log2() - self.lo.log2()) / (self.hi.log2() - self.lo.log2())
        } else {
            (value - self.lo) / (self.hi - self.lo)
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// First and last value of the axis.
    pub fn ends(&self) -> (f64, f64) {
        (self.lo, self.hi)
    }
}

/// The round number (1, 2 or 5 times a power of ten) next above `step`.
fn nice(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| f * power >= step * 0.999).unwrap_or(10.0);
    factor * power
}

/// A tick with the decimals that its step needs; thousands, millions and billions abbreviated.
fn tick_label(value: f64, step: f64) -> String {
    let value = if value.abs() < step * 1e-6 { 0.0 } else { value };
    for (size, suffix) in [(1e9, " G"), (1e6, " M"), (1e4, " k")] {
        if value.abs() >= size {
            let unit = if suffix == " k" { 1e3 } else { size };
            if value.abs() >= 1e15 {
                return format!("{value:.0e}").replace('-', "−");
            }
            let digits = usize::from(step < unit);
            return format!("{}{suffix}", fmt::fixed(value / unit, digits));
        }
    }
    let digits = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
    fmt::fixed(value, digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(lo: f64, hi: f64) -> Vec<String> {
        Scale::new(Kind::Linear, lo, hi, 0.0, 100.0, 5).ticks.into_iter().map(|t| t.1).collect()
    }

    #[test]
    fn ticks_are_round_and_cover_the_data() {
        assert_eq!(labels(1.0, 3.4), ["1.0", "1.5", "2.0", "2.5", "3.0", "3.5"]);
        assert_eq!(labels(0.0, 100.0), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(labels(0.0, 0.013), ["0.000", "0.005", "0.010", "0.015"]);
        assert_eq!(labels(0.0, 2.3e9), ["0", "500 M", "1.0 G", "1.5 G", "2.0 G", "2.5 G"]);
    }

    #[test]
    fn a_single_value_still_has_an_axis() {
        for v in [0.0, 1.0, -3.0, 1e12] {
            let s = Scale::new(Kind::Linear, v, v, 0.0, 100.0, 5);
            assert!(s.ticks.len() >= 2, "{v}");
            assert!((s.at(v) - 50.0).abs() < 30.0, "{v} at {}", s.at(v));
        }
    }

    #[test]
    fn powers_of_two_on_a_budget_axis() {
        let s = Scale::new(Kind::Log2, 7.0, 64.0, 0.0, 100.0, 8);
        let labels: Vec<&str> = s.ticks.iter().map(|t| t.1.as_str()).collect();
        assert_eq!(labels, ["8", "16", "32", "64"]);
        assert!((s.at(16.0) - s.at(8.0) - (s.at(32.0) - s.at(16.0))).abs() < 1e-9);
        assert!(!Scale::new(Kind::Log2, 0.0, 64.0, 0.0, 100.0, 8).log);
        assert!(!Scale::new(Kind::Log2, 8.0, 8.0, 0.0, 100.0, 8).log);
    }
}
