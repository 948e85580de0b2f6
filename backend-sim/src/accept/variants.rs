//! A process with its inputs moved by what their sources leave open.

use super::process::Process;

/// A rate as far from its value as it is moved at the most: a tenth of the way to 0 or 1 is left.
const LEFT: f64 = 0.1;

/// A process with one input at an end of its range.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    /// Key of the parameter; `conditional.3` is the rate at position 3.
    pub parameter: String,
    /// What was changed, in words: "−2.36 → −1.37 logits".
    pub change: String,
    /// The process with the change.
    pub process: Process,
}

impl Process {
    /// This process with one parameter at the low and at the high end of its range, for every parameter whose range is
    /// not a point. The chain's rates stay what they are. What the variants change of an answer is its model error.
    #[must_use]
    pub fn variants(&self) -> Vec<Variant> {
        let mut all = Vec::new();
        for (key, unit, p) in self.parameters() {
            for value in [p.low, p.high] {
                let mut process = self.clone();
                if value != p.value
                    && let Some(parameter) = process.parameter_mut(key)
                {
                    parameter.value = value;
                    let change = format!("{} → {value} {unit}", p.value);
                    all.push(Variant { parameter: key.to_owned(), change, process });
                }
            }
        }
        all
    }

    /// This process with the rate of one position 1.96 standard errors lower and higher, for every position that has an
    /// error: what counting longer would change of an answer, its *sampling* error. Empty where the rates have no errors.
    ///
    /// One position at a time, because that is how the errors are: the share of rounds that accept position d among those
    /// that accepted d − 1 is counted in other rounds than the next one's, so the estimates are as good as uncorrelated and
    /// their effects add up as squares. A shift of all at once would add them up as if all had missed the same way. The
    /// errors of a published curve's rounding alternate in sign; there the sum is somewhat too wide. A rate stays between 0
    /// and 1: it goes nine tenths of the way at the most.
    #[must_use]
    pub fn rate_variants(&self) -> Vec<Variant> {
        let mut all = Vec::new();
        for (d, (&rate, &error)) in self.conditional.values.iter().zip(&self.conditional.errors).enumerate() {
            if error <= 0.0 {
                continue;
            }
            for sign in [-1.0, 1.0] {
                let moved = (rate + sign * 1.96 * error).clamp(LEFT * rate, 1.0 - LEFT * (1.0 - rate));
                let mut process = self.clone();
                process.conditional.values[d] = moved;
                let change = format!("{rate:.3} → {moved:.3} (standard error {error:.3})");
                all.push(Variant { parameter: format!("conditional.{}", d + 1), change, process });
            }
        }
        all
    }
}
