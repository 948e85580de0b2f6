//! Which policy and budget pays: from the figures of all candidates of one setting to an answer with its interval.
//!
//! A *setting* is one acceptance source, context and concurrency. Its candidates ran the same requests, so they are paired
//! by request: the interval of a quotient, and the share of resamples in which a candidate is best, hold the requests fixed
//! between the two. An interval has three parts, kept apart: sampling over requests; the model of acceptance, whose
//! uncertain parameters are moved to their stated ends; and the transfer of the cost model to this machine.

mod answer;
mod resample;
#[cfg(test)]
mod tests;

pub use answer::{Candidate, Effect, FEW, Gap, LEAST, Part, Setting, TIE, Variant, answer, effects};
pub use resample::Resamples;
pub(crate) use resample::central;
