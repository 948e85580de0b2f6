//! Whether the values of a process can mean what they should.

use super::process::{MAX_DEPTH, Process, ProcessError};
use super::shape::Shape;

/// The greatest standard error of a share: that of one coin.
const MAX_ERROR: f64 = 0.5;

impl Process {
    /// Checks every value against its meaning, and that some process shows such rates.
    ///
    /// # Errors
    /// [`ProcessError::Value`]: the first key that is wrong.
    pub fn check(&self) -> Result<(), ProcessError> {
        self.check_values()?;
        Shape::of(self).map(drop)
    }

    pub(super) fn check_values(&self) -> Result<(), ProcessError> {
        let rates = &self.conditional.values;
        if rates.is_empty() || rates.len() > MAX_DEPTH {
            return Err(self.value("conditional", &format!("{} positions: give 1 to {MAX_DEPTH}", rates.len())));
        }
        if let Some(r) = rates.iter().find(|r| !(**r > 0.0 && **r < 1.0)) {
            return Err(self.value("conditional", &format!("rate {r} is not between 0 and 1")));
        }
        let errors = &self.conditional.errors;
        if !errors.is_empty() && errors.len() != rates.len() {
            let why =
                format!("{} standard errors of {} rates: give one for each rate, or none", errors.len(), rates.len());
            return Err(self.value("conditional.errors", &why));
        }
        if let Some((d, e)) = errors.iter().enumerate().find(|(_, e)| !(0.0..=MAX_ERROR).contains(*e)) {
            let why = format!(
                "{e} at position {}: a standard error of a rate lies within 0 and {MAX_ERROR}; leave `errors` out where the \
                 source gives none",
                d + 1
            );
            return Err(self.value("conditional.errors", &why));
        }
        if self.width < 2 || self.vocab < 16 || self.width >= self.vocab {
            return Err(self.value("width", "needs at least 2 ranks, and fewer than the vocabulary"));
        }
        for (key, _, p) in self.parameters() {
            let (least, most) = match key {
                "after_sibling" | "after_unlisted" => (-30.0, 30.0),
                "overlap_correlation" => (-1.0, 1.0),
                "rank_far" | "recovery" => (0.0, 1.0),
                "temper" => (0.05, 20.0),
                _ => (0.0, 20.0),
            };
            for v in [p.value, p.low, p.high] {
                if !(v >= least && v <= most) {
                    return Err(self.value(key, &format!("{v} is not within {least} and {most}")));
                }
            }
            if p.low > p.value || p.high < p.value {
                return Err(self.value(key, &format!("{} is not within its range {} … {}", p.value, p.low, p.high)));
            }
            if p.source.trim().is_empty() {
                return Err(self.value(key, "has no source"));
            }
        }
        Ok(())
    }
}
