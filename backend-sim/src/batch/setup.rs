//! What a priced run is made of.

use super::Arrivals;
use crate::memory::Room;

/// What the prompts of joining requests cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefill {
    /// Nothing: the loop is decoding alone.
    Excluded,
    /// Their time: a prompt runs in chunks of this many tokens between two rounds, and everyone waits for it.
    Charged {
        /// Prompt tokens per chunk, at least 1.
        chunk: u32,
    },
}

/// What a priced run is made of, beside trace and cost model.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchSetup {
    /// The concurrency cap.
    pub slots: u32,
    /// When requests arrive.
    pub arrivals: Arrivals,
    /// What their prompts cost.
    pub prefill: Prefill,
    /// Every response is placed behind this many tokens, whatever its recorded prompt; `None` = behind its own prompt.
    pub context: Option<u32>,
    /// The most nodes that a tree may have: its rows need KV too.
    pub budget: u32,
    /// Rows of one request's draft pass: the block of a block drafter, 1 for a conditional drafter.
    pub draft_rows: u32,
    /// Room for KV; `None` = no limit.
    pub kv: Option<Room>,
    /// Scales, by place of the request in the trace, the effective rows that a tree adds to its root; a request without an
    /// entry has factor 1.
    pub overlap: Vec<f32>,
}
