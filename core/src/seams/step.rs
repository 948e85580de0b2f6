//! What a step costs.

/// Shape of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepShape {
    /// Sequences that decode together.
    pub requests: u32,
    /// Rows verified, roots included.
    pub rows: u32,
    /// Mean context length in tokens.
    pub context: u32,
    /// Rows drafted.
    pub draft_rows: u32,
}

/// Predicted time of one step in ms.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepTime {
    /// Drafter.
    pub draft_ms: f64,
    /// Target.
    pub verify_ms: f64,
    /// Everything else.
    pub other_ms: f64,
}

impl StepTime {
    /// The whole step in ms.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.draft_ms + self.verify_ms + self.other_ms
    }
}

/// What a step costs.
pub trait StepCost: Send + Sync {
    /// Time of one step.
    fn step(&self, shape: &StepShape) -> StepTime;

    /// Total ms of the step for each row count in `rows`, the rest of `shape` unchanged. `ms` has the length of `rows`.
    fn curve(&self, shape: &StepShape, rows: &[u32], ms: &mut [f64]) {
        for (&rows, ms) in rows.iter().zip(ms) {
            *ms = self.step(&StepShape { rows, ..*shape }).total();
        }
    }

    /// Ends of the graph buckets that steps are padded to, in rows over the whole batch, ascending; empty where steps are
    /// not padded. A policy needs to compare only these: within a bucket more rows cost the same.
    fn bucket_ends(&self) -> &[u32] {
        &[]
    }
}
