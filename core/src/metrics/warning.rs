//! What a reader must know before believing a cell's figures, with advice.

use super::tally::Tally;

/// Steps without one accepted draft after which τ = 1 is a symptom, not chance.
const BARREN: u64 = 100;
/// Loop share from which τ says more about loops than about text.
const LOOPS: f64 = 0.1;
/// Requests below which a percentile interval is too narrow to be trusted.
const FEW: usize = 8;

/// Something that makes a figure doubtful.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Warning {
    /// Drafted steps in a row that accepted nothing (public fault 52).
    NothingAccepted {
        /// How many.
        steps: u64,
    },
    /// Many responses end in a loop (public fault 50).
    Loops {
        /// Their share of the responses that are long enough to be judged.
        share: f64,
    },
    /// Too few requests for an interval that means something.
    FewRequests {
        /// How many.
        requests: usize,
    },
    /// The first, cold rounds are part of the figures (public fault 53).
    ColdStart,
    /// Requests ended with a fault; the figures are those of the others.
    Faults {
        /// How many.
        requests: u64,
    },
}

impl Warning {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            Self::NothingAccepted { .. } => {
                "check that the drafter belongs to this target, and positions, features and token ids of the draft"
            }
            Self::Loops { .. } => {
                "read τ of the responses that do not loop, raise the temperature, or use prompts of real text"
            }
            Self::FewRequests { .. } => "run more prompts; give differences between cells paired by request",
            Self::ColdStart => "run a warm-up before the first measured round and leave it out",
            Self::Faults { .. } => {
                "read the faults in the cell's detail; the remaining requests may be the easier ones"
            }
        }
    }
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NothingAccepted { steps } => write!(f, "no draft was accepted in {steps} drafted steps in a row"),
            Self::Loops { share } => write!(f, "{:.0} % of the responses end in a loop", share * 100.0),
            Self::FewRequests { requests } => write!(f, "the interval rests on {requests} requests"),
            Self::ColdStart => write!(f, "the first rounds after start-up are measured too"),
            Self::Faults { requests } => write!(f, "{requests} requests ended with a fault"),
        }?;
        write!(f, ": {}", self.advice())
    }
}

/// The warnings of one cell. `loop_share` as [`super::loop_share`] gives it; `warmed_up`: whether cold rounds were left
/// out.
#[must_use]
pub fn warnings(tally: &Tally, loop_share: Option<f64>, warmed_up: bool) -> Vec<Warning> {
    let mut found = Vec::new();
    if tally.longest_barren() >= BARREN {
        found.push(Warning::NothingAccepted { steps: tally.longest_barren() });
    }
    if let Some(share) = loop_share.filter(|s| *s >= LOOPS) {
        found.push(Warning::Loops { share });
    }
    let requests = tally.requests().iter().filter(|r| r.steps > 0).count();
    if requests < FEW {
        found.push(Warning::FewRequests { requests });
    }
    if !warmed_up && tally.times().1 > 0 {
        found.push(Warning::ColdStart);
    }
    if tally.faults() > 0 {
        found.push(Warning::Faults { requests: tally.faults() });
    }
    found
}
