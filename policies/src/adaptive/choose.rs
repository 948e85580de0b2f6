//! Which budget: long-run rates over bucket ends, with hysteresis.

use treeline_core::{StepCost, StepShape};

/// The end with the highest rate `(1 + Φ) / C`: every end is compared, since a cost may be concave or stepped and the
/// first end that does not improve says nothing about later ones. `phi[i]` is `None` where nothing is known. Ties go to
/// the smaller index.
#[must_use]
pub fn best_end(phi: &[Option<f64>], ms: &[f64]) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    for (i, (phi, ms)) in phi.iter().zip(ms).enumerate() {
        if let Some(phi) = phi {
            let rate = (1.0 + phi) / ms;
            if best.is_none_or(|(_, b)| rate > b) {
                best = Some((i, rate));
            }
        }
    }
    best.map(|(i, _)| i)
}

/// The same for renewal reward: the end with the highest `Σ(1 + Φ) − g · C`, `g` = the running throughput in tokens/ms
/// (Dinkelbach's form of the long-run optimum).
#[must_use]
pub fn best_renewal(tokens: &[f64], ms: &[f64], g: f64) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    for (i, (tokens, ms)) in tokens.iter().zip(ms).enumerate() {
        let value = tokens - g * ms;
        if best.is_none_or(|(_, b)| value > b) {
            best = Some((i, value));
        }
    }
    best.map(|(i, _)| i)
}

/// Moves from `current` to the best end only when that gains more than `margin` (relative).
#[must_use]
pub fn with_hysteresis(current: Option<usize>, phi: &[Option<f64>], ms: &[f64], margin: f64) -> Option<usize> {
    let best = best_end(phi, ms)?;
    let rate = |i: usize| phi[i].map(|phi| (1.0 + phi) / ms[i]);
    match current.and_then(|c| Some((c, rate(c)?))) {
        Some((c, now)) if rate(best).is_none_or(|new| new <= now * (1.0 + margin)) => Some(c),
        _ => Some(best),
    }
}

/// What each end costs for `requests` sequences at mean context `context`: ms of the whole step.
pub(super) struct Prices {
    rows: Vec<u32>,
    pub ms: Vec<f64>,
}

impl Prices {
    pub fn new(ends: usize) -> Self {
        Self { rows: Vec::with_capacity(ends), ms: Vec::with_capacity(ends) }
    }

    /// Prices all `ends`; `draft_rows` are drafted for every end but 0.
    ///
    /// # Errors
    /// A cost that is no positive number, or one that does not depend on the rows at all.
    pub fn update(
        &mut self,
        cost: &dyn StepCost,
        ends: &[u32],
        requests: u32,
        context: u32,
        draft_rows: u32,
    ) -> Result<(), String> {
        self.rows.clear();
        self.rows.extend(ends.iter().map(|n| requests * (1 + n)));
        self.ms.clear();
        self.ms.resize(ends.len(), 0.0);
        let shape = StepShape { requests, rows: 0, context, draft_rows };
        cost.curve(&shape, &self.rows, &mut self.ms);
        if ends.first() == Some(&0) {
            self.ms[0] = cost.step(&StepShape { rows: requests, draft_rows: 0, ..shape }).total();
        }
        if let Some(i) = self.ms.iter().position(|ms| !ms.is_finite() || *ms <= 0.0) {
            return Err(format!(
                "a step of {} rows costs {} ms, which is no positive number",
                self.rows[i], self.ms[i]
            ));
        }
        Ok(())
    }
}

/// Makes ends whose step takes longer than `limit` ms infinitely expensive, all but the fastest where all do.
pub(super) fn limit_latency(ms: &mut [f64], limit: Option<f64>) {
    let Some(limit) = limit else { return };
    let fastest = ms.iter().copied().fold(f64::INFINITY, f64::min);
    for ms in ms {
        if *ms > limit.max(fastest) {
            *ms = f64::INFINITY;
        }
    }
}

/// Refuses a cost that is the same for one row and for very many: it would pin the choice to the largest tree.
pub(crate) fn refuse_flat(cost: &dyn StepCost) -> Result<(), String> {
    let at = |rows| cost.step(&StepShape { requests: 1, rows, context: 1, draft_rows: 0 }).total();
    if at(1) == at(1 << 16) {
        return Err(
            "the step cost is the same for 1 and for 65536 rows: a flat cost always chooses the largest tree".into()
        );
    }
    Ok(())
}
