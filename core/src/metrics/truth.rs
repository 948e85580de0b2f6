//! Finds, once a response is complete, where the truth ranked at every depth behind every root.

use crate::draft::Candidate;
use crate::round::RoundView;
use crate::trace::Position;

/// What was drafted behind one root, and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Rooted {
    /// Absolute position of the root.
    pub start: u32,
    /// Nodes that the policy was allowed.
    pub budget: u32,
    /// Accepted drafts.
    pub accepted: u32,
    /// The drafter's rows, and the truth's rank in each: what a trace stores and what
    /// [`super::Waterfall::add`] takes (`position.truth`).
    pub position: Position,
}

/// Keeps a block drafter's rows per root until the response is complete. Fed every round of a run; rounds without drafts
/// leave no root behind.
///
/// A conditional drafter's rows depend on the path, so the truth beyond the walk is unknown: nothing is kept for it.
#[derive(Debug, Clone, Default)]
pub struct TruthTracker {
    width: usize,
    requests: Vec<Vec<Rooted>>,
}

impl TruthTracker {
    /// Keeps at most `width` ranks per row.
    #[must_use]
    pub fn new(width: u32) -> Self {
        Self { width: width as usize, requests: Vec::new() }
    }

    /// Takes one round's drafts.
    pub fn add(&mut self, view: &RoundView<'_>) {
        let Some(drafts) = view.drafts else { return };
        for (seq, entry) in view.log.entries.iter().enumerate() {
            let Ok(step) = &entry.result else { continue };
            let rows: Vec<&[Candidate]> =
                (1..=drafts.depth(seq as u32)).map_while(|d| drafts.level(seq as u32, d)).collect();
            if rows.is_empty() {
                continue;
            }
            let mut position = Position::default();
            for row in rows {
                let row = &row[..row.len().min(self.width)];
                position.logp.extend(row.iter().map(|c| c.logp));
                position.ids.extend(row.iter().map(|c| c.token));
                position.ends.push(position.ids.len() as u32);
            }
            if self.requests.len() <= entry.index {
                self.requests.resize(entry.index + 1, Vec::new());
            }
            self.requests[entry.index].push(Rooted {
                start: entry.start,
                budget: entry.asked,
                accepted: step.accepted(),
                position,
            });
        }
    }

    /// Hands over the roots of the request with this index, in order, their truth filled in from its complete `tokens`
    /// (first token included); the prompt had `prompt_tokens`. The truth of a root ends with the drafter's depth or the
    /// response, whichever comes first.
    pub fn finish(&mut self, index: usize, prompt_tokens: u32, tokens: &[u32]) -> Vec<Rooted> {
        let mut roots = self.requests.get_mut(index).map(std::mem::take).unwrap_or_default();
        for root in &mut roots {
            let behind = root.start.checked_sub(prompt_tokens).map_or(tokens.len(), |at| at as usize + 1);
            let truth = tokens.get(behind..).unwrap_or(&[]);
            let position = &root.position;
            let ranks = truth.iter().zip(1..=position.ends.len() as u32).map(|(token, depth)| {
                position.row_ids(depth).iter().position(|id| id == token).map(|rank| rank as u32)
            });
            root.position.truth = ranks.collect();
        }
        roots
    }
}
