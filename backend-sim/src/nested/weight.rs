//! e^x of many log-probabilities, rounded to f32: the very numbers that `x.exp() as f32` gives, in a third of the time.
//!
//! The series below is good to 1e-14. Where all numbers within 1e-12 of its result round to the same f32, the system's e^x
//! does too; where they do not (one in some hundred thousand), or outside of its range, the system's is asked.

/// Least argument of the series: the powers of two stay normal numbers.
const LEAST: f64 = -700.0;

/// Relative error that is allowed for, of the series and of the system's e^x.
const ERROR: f64 = 1e-12;

/// Adding and taking away 1.5 · 2⁵² rounds to a whole number, which then stands in the low bits.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// ln 2 in two parts, the first with so few bits that its product with a whole number is exact.
const LN_2: (f64, f64) = (0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10);

/// Appends e^x for each of `scores`, none of them much above 0.
pub(super) fn extend(weights: &mut Vec<f32>, scores: &[f64]) {
    let first = weights.len();
    let mut certain = true;
    weights.extend(scores.iter().map(|&x| {
        let y = series(x);
        let (low, high) = ((y * (1.0 - ERROR)) as f32, (y * (1.0 + ERROR)) as f32);
        certain &= (low == high) & (x > LEAST);
        low
    }));
    if !certain {
        for (weight, x) in weights[first..].iter_mut().zip(scores) {
            *weight = x.exp() as f32;
        }
    }
}

/// e^x for x from [`LEAST`] to some hundreds; anything elsewhere.
#[inline(always)]
fn series(x: f64) -> f64 {
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    let r = (x - whole * LN_2.0) - whole * LN_2.1;
    // Σ rⁱ/i! for |r| ≤ ln 2 / 2, up to 11: the next one is below 1e-14.
    let mut sum = 1.0 / 39_916_800.0;
    for factorial in [3_628_800.0, 362_880.0, 40_320.0, 5_040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0] {
        sum = sum * r + 1.0 / factorial;
    }
    // 2 to the whole number: its low bits are those of `shifted`.
    let power = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    sum * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_the_rounded_exponentials() {
        let mut scores: Vec<f64> = (0..200_000).map(|i| -f64::from(i) * 1.234_567e-4).collect();
        scores.extend((0..60_000).map(|i| -f64::from(i) * 0.013));
        scores.extend([0.0, -0.0, -1e-300, -87.3, -103.97, -104.0, -699.99, -700.0, -745.2, -1e9]);
        // f32 log-probabilities and their sums, as scores are.
        scores.extend((1..50_000).map(|i| -f64::from(f32::from_bits(i * 40_000).min(1e30))));
        for part in scores.chunks(61) {
            let mut weights = vec![7.0];
            extend(&mut weights, part);
            let expected: Vec<f32> = part.iter().map(|x| x.exp() as f32).collect();
            assert_eq!(weights[1..], expected, "{part:?}");
        }
    }

    /// The series alone, so that the system's e^x does not hide a poor one.
    #[test]
    fn the_series_is_as_good_as_it_says() {
        for i in 0..700_000 {
            let x = -f64::from(i) * 1e-3;
            assert!((series(x) / x.exp() - 1.0).abs() < 1e-13, "{x}");
        }
    }
}
