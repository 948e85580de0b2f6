//! Where the true token ranks when it is not the first: power laws, ready to list and to draw from.

use super::process::Process;

/// Exponents of the table: from flat to steep.
const STEP: f64 = 0.02;

/// One power law over ranks 1 … V − 1, cut at the listed width.
#[derive(Debug, Clone)]
pub(super) struct RankLaw {
    /// ln P(k) of ranks 1 … W − 1.
    pub log: Vec<f32>,
    /// P(rank ≤ k) of the same.
    pub cumulative: Vec<f64>,
    /// Σ P(k)^(1/temper) over all ranks; 1 for a calibrated drafter.
    pub tempered: f64,
}

/// The laws of a process by exponent.
#[derive(Debug, Clone)]
pub(super) struct RankLaws {
    laws: Vec<RankLaw>,
}

impl RankLaws {
    pub fn of(process: &Process) -> Self {
        let most = process.rank_exponent.value + 5.0 * process.rank_spread.value;
        let count = (most / STEP).ceil() as usize + 2;
        Self { laws: (0..count).map(|i| law(process, STEP * i as f64)).collect() }
    }

    /// The law of this exponent, or the steepest flatter one whose best rank does not overtake a first choice of `first`.
    pub fn pick(&self, exponent: f64, first: f64) -> &RankLaw {
        let most = self.laws.len() - 1;
        let mut at = ((exponent / STEP).round().max(0.0) as usize).min(most);
        let room = first / (1.0 - first).max(f64::MIN_POSITIVE);
        if self.laws[at].cumulative[0] > room {
            // The best rank's share grows with the exponent.
            at = self.laws[..at].partition_point(|l| l.cumulative[0] <= room).saturating_sub(1);
        }
        &self.laws[at]
    }
}

fn law(process: &Process, exponent: f64) -> RankLaw {
    let vocab = f64::from(process.vocab);
    let sum = power_sum(exponent, vocab - 1.0);
    let near = 1.0 - process.rank_far.value;
    let width = process.width as usize;
    let mut cumulative = Vec::with_capacity(width - 1);
    let mut total = 0.0;
    let log: Vec<f32> = (1..width)
        .map(|k| {
            let p = near * (k as f64).powf(-exponent) / sum;
            total += p;
            cumulative.push(total);
            p.ln() as f32
        })
        .collect();
    let t = process.temper.value;
    let tempered =
        (near / sum).powf(1.0 / t) * power_sum(exponent / t, vocab - 1.0) + process.rank_far.value.powf(1.0 / t);
    RankLaw { log, cumulative, tempered }
}

/// Σ_{k=1}^{n} k^−e: 32 terms and the Euler–Maclaurin rest.
pub(super) fn power_sum(e: f64, n: f64) -> f64 {
    let first = n.min(32.0);
    let head: f64 = (1..=first as u32).map(|k| f64::from(k).powf(-e)).sum();
    if n <= 32.0 {
        return head;
    }
    let (a, b) = (32.0f64, n);
    let whole = if (e - 1.0).abs() < 1e-9 { (b / a).ln() } else { (b.powf(1.0 - e) - a.powf(1.0 - e)) / (1.0 - e) };
    let ends = 0.5 * (b.powf(-e) - a.powf(-e));
    let slope = e / 12.0 * (a.powf(-e - 1.0) - b.powf(-e - 1.0));
    let third = e * (e + 1.0) * (e + 2.0) / 720.0 * (b.powf(-e - 3.0) - a.powf(-e - 3.0));
    head + whole + ends + slope + third
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_power_sum_equals_its_terms() {
        for e in [0.0, 0.5, 1.0, 1.48, 3.0] {
            let plain: f64 = (1..=5000).map(|k| f64::from(k).powf(-e)).sum();
            assert!((power_sum(e, 5000.0) / plain - 1.0).abs() < 1e-9, "{e}");
        }
    }
}
