//! Element-wise passes and reductions over one row. A reduction keeps eight partial results by index modulo eight, so it
//! depends on the row's contents alone, not on the machine's vector width.

use super::arch;
use pulp::NullaryFnOnce;

const LANES: usize = 8;

/// `out = x / sqrt(mean(x²) + eps) · weight`.
pub(crate) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    arch().dispatch(RmsNorm { x, weight, eps, out });
}

/// `out = silu(gate) · up`.
pub(crate) fn silu_mul(gate: &[f32], up: &[f32], out: &mut [f32]) {
    arch().dispatch(SiluMul { gate, up, out });
}

/// Replaces scores by `exp(score − max)` and returns 1 / their sum. NaN anywhere gives NaN.
pub(crate) fn softmax(x: &mut [f32]) -> f32 {
    arch().dispatch(Softmax { x })
}

/// `out = x − log Σ exp(x)`: natural log-probabilities over the whole row. NaN anywhere makes every entry NaN.
pub(crate) fn log_softmax(x: &[f32], out: &mut [f32]) {
    arch().dispatch(LogSoftmax { x, out });
}

// Each pass is a type with an `inline(always)` body and not a closure: only so is it compiled for the detected unit.

struct RmsNorm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
}

impl NullaryFnOnce for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let mut sums = [0.0f32; LANES];
        let (blocks, rest) = self.x.as_chunks::<LANES>();
        for block in blocks {
            for i in 0..LANES {
                sums[i] += block[i] * block[i];
            }
        }
        for (i, x) in rest.iter().enumerate() {
            sums[i] += x * x;
        }
        let mean = total(&sums) / self.x.len() as f32;
        let scale = 1.0 / (mean + self.eps).sqrt();
        for ((out, &x), &w) in self.out.iter_mut().zip(self.x).zip(self.weight) {
            *out = x * scale * w;
        }
    }
}

struct SiluMul<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    out: &'a mut [f32],
}

impl NullaryFnOnce for SiluMul<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for ((out, &g), &u) in self.out.iter_mut().zip(self.gate).zip(self.up) {
            *out = g / (1.0 + exp(-g)) * u;
        }
    }
}

struct Softmax<'a> {
    x: &'a mut [f32],
}

impl NullaryFnOnce for Softmax<'_> {
    type Output = f32;

    #[inline(always)]
    fn call(self) -> f32 {
        let max = max(self.x);
        let mut sums = [0.0f32; LANES];
        let (blocks, rest) = self.x.as_chunks_mut::<LANES>();
        for block in blocks {
            for i in 0..LANES {
                block[i] = exp(block[i] - max);
                sums[i] += block[i];
            }
        }
        for (i, x) in rest.iter_mut().enumerate() {
            *x = exp(*x - max);
            sums[i] += *x;
        }
        1.0 / total(&sums)
    }
}

struct LogSoftmax<'a> {
    x: &'a [f32],
    out: &'a mut [f32],
}

impl NullaryFnOnce for LogSoftmax<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let max = max(self.x);
        let mut sums = [0.0f32; LANES];
        let (blocks, rest) = self.x.as_chunks::<LANES>();
        for block in blocks {
            for i in 0..LANES {
                sums[i] += exp(block[i] - max);
            }
        }
        for (i, x) in rest.iter().enumerate() {
            sums[i] += exp(x - max);
        }
        let norm = max + total(&sums).ln();
        for (out, &x) in self.out.iter_mut().zip(self.x) {
            *out = x - norm;
        }
    }
}

/// Largest entry; NaN is passed over here and comes back through the sum.
#[inline(always)]
fn max(x: &[f32]) -> f32 {
    let mut most = [f32::NEG_INFINITY; LANES];
    let (blocks, rest) = x.as_chunks::<LANES>();
    for block in blocks {
        for i in 0..LANES {
            most[i] = if block[i] > most[i] { block[i] } else { most[i] };
        }
    }
    for (i, &x) in rest.iter().enumerate() {
        most[i] = if x > most[i] { x } else { most[i] };
    }
    let mut best = most[0];
    for m in most {
        best = if m > best { m } else { best };
    }
    best
}

/// Sum of the partial results, in pairs.
#[inline(always)]
fn total(sums: &[f32; LANES]) -> f32 {
    ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]))
}

/// e^x in f32: x = n·ln 2 + r with |r| ≤ ln 2 / 2 and a polynomial in r (relative error below 2·10⁻⁷); 0 below −87, NaN
/// stays NaN. Written out because the library call is not vectorised.
#[inline(always)]
fn exp(x: f32) -> f32 {
    /// 1.5·2²³: adding it leaves the rounded integer in the low bits.
    const MAGIC: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let clamped = if x > 88.0 { 88.0 } else { x };
    let shifted = clamped.mul_add(std::f32::consts::LOG2_E, MAGIC);
    let n = shifted - MAGIC;
    let r = n.mul_add(-LN2_HIGH, clamped);
    let r = n.mul_add(-LN2_LOW, r);
    let p = 1.0 / 720.0;
    let p = r.mul_add(p, 1.0 / 120.0);
    let p = r.mul_add(p, 1.0 / 24.0);
    let p = r.mul_add(p, 1.0 / 6.0);
    let p = r.mul_add(p, 0.5);
    let p = (r * r).mul_add(p, r) + 1.0;
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
    let value = p * power;
    if x < -87.0 { 0.0 } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_everywhere() {
        for i in -8700..=8800 {
            let x = i as f32 * 0.01;
            let (got, want) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((got - want).abs() <= 3e-7 * want, "{x}: {got} against {want}");
        }
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-90.0), 0.0);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn softmax_and_log_softmax_agree_with_f64() {
        let x: Vec<f32> = (0..37).map(|i| ((i * 7919) % 101) as f32 * 0.13 - 5.0).collect();
        let norm = x.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln();
        let mut soft = x.clone();
        let scale = softmax(&mut soft);
        let mut log = vec![0.0; x.len()];
        log_softmax(&x, &mut log);
        for ((&x, &s), &l) in x.iter().zip(&soft).zip(&log) {
            let want = f64::from(x) - norm;
            assert!((f64::from(l) - want).abs() < 2e-6, "{l} against {want}");
            assert!((f64::from(s * scale) - want.exp()).abs() < 1e-6);
        }
    }

    #[test]
    fn one_nan_spoils_the_row() {
        let mut x = vec![0.5; 19];
        x[11] = f32::NAN;
        let mut out = x.clone();
        log_softmax(&x, &mut out);
        assert!(out.iter().all(|x| x.is_nan()));
        assert!(softmax(&mut x).is_nan());
    }

    #[test]
    fn norm_matches_its_formula() {
        let x: Vec<f32> = (0..20).map(|i| i as f32 * 0.3 - 2.0).collect();
        let w: Vec<f32> = (0..20).map(|i| 1.0 + i as f32 * 0.01).collect();
        let mut out = vec![0.0; 20];
        rms_norm(&x, &w, 1e-5, &mut out);
        let mean = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>() / 20.0;
        for ((&x, &w), &o) in x.iter().zip(&w).zip(&out) {
            let want = f64::from(x) / (mean + 1e-5).sqrt() * f64::from(w);
            assert!((f64::from(o) - want).abs() < 1e-6 * want.abs().max(1.0));
        }
    }
}
