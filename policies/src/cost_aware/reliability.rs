//! How probable a node really is, by what the drafter claims: a reliability curve, monotone, so that it never changes the
//! order of nodes and best-first tables stay valid.

/// Bins per nat of ln q, and nats covered.
const PER_NAT: usize = 16;
const NATS: usize = 12;
const BINS: usize = PER_NAT * NATS;
/// Weight of the claim itself in every bin, in observations.
const PRIOR: f64 = 4.0;

/// A monotone map from a path's log-probability to the share of such paths that were accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Reliability {
    /// At ln q = −i / PER_NAT, i = 0..=BINS.
    at: Vec<f32>,
}

impl Default for Reliability {
    /// The drafter's own claim.
    fn default() -> Self {
        Self { at: (0..=BINS).map(|i| (-(i as f32) / PER_NAT as f32).exp()).collect() }
    }
}

impl Reliability {
    /// A curve through points (ln q, probability), linear between them; outside them the end points' quotients to q hold.
    ///
    /// # Errors
    /// Points that do not ascend in both, a ln q above 0, a probability outside 0..=1.
    pub fn through(points: &[[f64; 2]]) -> Result<Self, String> {
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return Err("it has no point".into()) };
        if let Some(i) = points.iter().position(|[x, p]| !(*x <= 0.0 && x.is_finite() && (0.0..=1.0).contains(p))) {
            return Err(format!("point {i} is no [ln q ≤ 0, probability]"));
        }
        if let Some(i) = points.windows(2).position(|w| w[0][0] >= w[1][0] || w[0][1] > w[1][1]) {
            return Err(format!("point {} does not ascend", i + 1));
        }
        let value = |x: f64| {
            let i = points.partition_point(|p| p[0] < x);
            match (i.checked_sub(1).map(|i| points[i]), points.get(i)) {
                (Some(a), Some(b)) => a[1] + (b[1] - a[1]) * (x - a[0]) / (b[0] - a[0]),
                (None, _) => first[1] * (x - first[0]).exp(),
                (_, None) => (last[1] * (x - last[0]).exp()).min(1.0),
            }
        };
        Ok(Self { at: (0..=BINS).map(|i| value(-(i as f64) / PER_NAT as f64) as f32).collect() })
    }

    /// The probability that a node with path log-probability `ln_q` is accepted.
    #[must_use]
    #[inline]
    pub fn probability(&self, ln_q: f32) -> f32 {
        let x = -ln_q * PER_NAT as f32;
        // NaN and +∞ become 0 or the last bin by the cast.
        let i = x as usize;
        if i >= BINS {
            return self.at[BINS] * (ln_q + NATS as f32).exp();
        }
        let t = (x - i as f32).max(0.0);
        self.at[i] + (self.at[i + 1] - self.at[i]) * t
    }
}

/// Counts for a [`Reliability`].
#[derive(Debug, Clone, PartialEq)]
pub struct ReliabilityFit {
    /// Observations and acceptances by bin around ln q = −i / PER_NAT.
    seen: Vec<f64>,
    accepted: Vec<f64>,
}

impl Default for ReliabilityFit {
    fn default() -> Self {
        Self { seen: vec![0.0; BINS + 1], accepted: vec![0.0; BINS + 1] }
    }
}

impl ReliabilityFit {
    /// Takes in a node: its path log-probability, and whether it was on the accepted path.
    #[inline]
    pub fn add(&mut self, ln_q: f32, accepted: bool) {
        let i = ((-ln_q * PER_NAT as f32 + 0.5) as usize).min(BINS);
        self.seen[i] += 1.0;
        self.accepted[i] += f64::from(u8::from(accepted));
    }

    /// The monotone curve that fits best (pool adjacent violators), with the claim itself as a prior of 4 observations
    /// per bin.
    #[must_use]
    pub fn finish(&self) -> Reliability {
        // Blocks of bins from improbable to probable: (weight, mean, bins).
        let mut blocks: Vec<(f64, f64, usize)> = Vec::with_capacity(BINS + 1);
        for i in (0..=BINS).rev() {
            let claim = (-(i as f64) / PER_NAT as f64).exp();
            let weight = self.seen[i] + PRIOR;
            let mut block = (weight, (self.accepted[i] + PRIOR * claim) / weight, 1);
            while let Some(&(w, mean, bins)) = blocks.last()
                && mean >= block.1
            {
                blocks.pop();
                let weight = w + block.0;
                block = (weight, (mean * w + block.1 * block.0) / weight, bins + block.2);
            }
            blocks.push(block);
        }
        let mut at: Vec<f32> =
            blocks.iter().flat_map(|&(_, mean, bins)| std::iter::repeat_n(mean as f32, bins)).collect();
        at.reverse();
        Reliability { at }
    }
}
