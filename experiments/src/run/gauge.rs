//! What is noted of every round of a cell.

use super::rounds::RoundRow;
use super::source::Source;
use crate::config::Record;
use treeline_core::metrics::{Tally, TruthTracker, Waterfall};
use treeline_core::{Response, RoundView};

/// One request's share of its rounds' time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Share {
    /// Σ round time / requests in the round, in ms.
    pub ms: f64,
    /// Σ 1 / requests in the round, over timed rounds.
    pub rounds: f64,
    /// Tokens of timed rounds.
    pub tokens: f64,
}

/// Sums over the rounds of one cell.
pub(super) struct Gauge<'s, S> {
    source: &'s S,
    record: Record,
    key: &'s str,
    pub tally: Tally,
    pub waterfall: Waterfall,
    tracker: Option<TruthTracker>,
    /// Whether the source tells the truth instead.
    known: bool,
    /// Per depth: accepted nodes of rank 0, 1, and higher.
    pub ranks: Vec<[u64; 3]>,
    /// By index of the request.
    pub shares: Vec<Share>,
    pub rows: Vec<RoundRow>,
}

impl<'s, S: Source> Gauge<'s, S> {
    /// Nothing seen. `block`: whether the drafter's rows depend on depth alone, so that the truth can be followed.
    pub fn new(source: &'s S, key: &'s str, record: Record, block: bool) -> Self {
        // A source that knows the truth does not need it found.
        let follow = block && !source.facts().knows_truth;
        Self {
            source,
            record,
            key,
            tally: Tally::new(),
            waterfall: Waterfall::default(),
            known: block && !follow,
            tracker: follow.then(|| TruthTracker::new(source.facts().width)),
            ranks: Vec::new(),
            shares: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Takes in a round.
    pub fn add(&mut self, view: &RoundView<'_>) {
        self.tally.add_view(view);
        if let Some(tracker) = &mut self.tracker {
            tracker.add(view);
        }
        let running = view.log.entries.len().max(1) as f64;
        for (seq, entry) in view.log.entries.iter().enumerate() {
            let Ok(step) = &entry.result else { continue };
            if self.shares.len() <= entry.index {
                self.shares.resize(entry.index + 1, Share::default());
            }
            if let Some(ms) = view.log.ms() {
                let share = &mut self.shares[entry.index];
                share.ms += ms / running;
                share.rounds += 1.0 / running;
                share.tokens += step.emitted.len() as f64;
            }
            if view.drafts.is_none() {
                continue;
            }
            let tree = view.forest.tree(seq);
            for (depth, &node) in step.path.iter().enumerate() {
                if self.ranks.len() <= depth {
                    self.ranks.resize(depth + 1, [0; 3]);
                }
                let rank = tree.ranks().get(node as usize).copied().unwrap_or(0);
                self.ranks[depth][rank.min(2) as usize] += 1;
            }
            let drafted = view.drafts.map_or(0, |d| d.depth(seq as u32)) as usize;
            if self.known
                && drafted > 0
                && let Some(truth) = self.source.truth(entry.request, entry.start)
            {
                self.waterfall.add(&truth[..truth.len().min(drafted)], entry.asked, step.accepted());
            }
        }
        let every = match self.record {
            Record::Summary => return,
            Record::Sample(n) => u64::from(n.max(1)),
            Record::All => 1,
        };
        if view.log.round.is_multiple_of(every) {
            self.rows.extend(RoundRow::of(self.key, view.log));
        }
    }

    /// Follows the truth to its end, now that the responses are complete.
    pub fn finish(&mut self, prompts: &[u32], responses: &[Response]) {
        let Some(tracker) = &mut self.tracker else { return };
        for (index, response) in responses.iter().enumerate() {
            let roots = tracker.finish(index, prompts[index], &response.tokens);
            if response.end.is_ok() {
                for root in roots {
                    self.waterfall.add(&root.position.truth, root.budget, root.accepted);
                }
            }
        }
    }
}
