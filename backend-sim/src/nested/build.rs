//! From a trace to its tables.

use super::{Nested, NestedError};
use treeline_core::trace::{Position, Trace, TraceRequest};
use treeline_policies::pop_order::{PopOrder, Popped};

/// A rise that no listed tree has.
pub(super) const NEVER: u16 = u16::MAX;
/// Bits of a node's rank beside its depth.
pub(super) const RANK_BITS: u32 = 11;
/// Mask of the same.
pub(super) const RANK_MASK: u16 = (1 << RANK_BITS) - 1;

/// Deepest level that fits beside a rank.
const MOST_DEPTH: u64 = 31;
/// Most nodes: a node of n has a rank below n.
const MOST_NODES: u64 = RANK_MASK as u64;

impl Nested {
    /// The tables of `trace` for budgets up to `max_nodes`, `spine` rank-0 levels first (0: best-first alone).
    ///
    /// # Errors
    /// A conditional drafter's trace, one that contradicts itself, more than 31 levels or 2047 nodes.
    pub fn build(trace: &Trace, max_nodes: u32, spine: u32) -> Result<Self, NestedError> {
        let meta = &trace.meta;
        if meta.conditional {
            return Err(NestedError::Conditional);
        }
        crate::validate(trace)?;
        check_size("levels", u64::from(meta.depth), MOST_DEPTH, "replay such a trace policy by policy")?;
        check_size("nodes", u64::from(max_nodes), MOST_NODES, "ask for a smaller budget")?;
        let positions: u64 = trace.requests.iter().map(|r| r.positions.len() as u64).sum();
        let nodes = positions.saturating_mul(u64::from(max_nodes));
        Self::check_nodes(nodes)?;
        let mut out = Self {
            max_nodes,
            spine,
            depth: meta.depth,
            width: meta.width,
            ids: trace.requests.iter().map(|r| r.id).collect(),
            prompts: trace.requests.iter().map(|r| r.prompt_tokens).collect(),
            starts: vec![0],
            ends: Vec::with_capacity(positions as usize),
            weights: Vec::with_capacity(nodes as usize),
            places: Vec::with_capacity(nodes as usize),
            rises: Vec::with_capacity(positions as usize * meta.depth as usize),
            certain: Vec::with_capacity(positions as usize),
            chains: Vec::with_capacity(positions as usize),
            levels: Vec::with_capacity(positions as usize),
            behind: Vec::with_capacity(positions as usize),
        };
        let mut work = Work::default();
        for request in &trace.requests {
            for (index, position) in request.positions.iter().enumerate() {
                out.push(&mut work, request, index as u32, position, meta.context);
            }
            out.starts.push(out.ends.len() as u32);
        }
        out.weights.shrink_to_fit();
        out.places.shrink_to_fit();
        Ok(out)
    }

    /// Whether so many nodes have room in the tables.
    pub(super) fn check_nodes(nodes: u64) -> Result<(), NestedError> {
        check_size("nodes over all positions", nodes, u64::from(u32::MAX), "take fewer requests, or a smaller budget")
    }

    fn push(&mut self, work: &mut Work, r: &TraceRequest, index: u32, p: &Position, context: u32) {
        // The caps of the decode loop: nodes fit into the rows behind the root, accepted tokens and the bonus into what may
        // still be emitted.
        let start = r.prompt_tokens + index;
        let nodes = self.max_nodes.min(context.saturating_sub(start).saturating_sub(1));
        let left = r.max_new - 1 - index;
        let depth = (p.ends.len() as u32).min(left.saturating_sub(1));
        let behind = r.emitted - 1 - index;
        let chain = p.truth.iter().take(depth as usize).take_while(|t| **t == Some(0)).count();
        self.chains.push(chain as u8);
        self.behind.push(behind);
        // Without a row for a node there is no level either.
        self.levels.push(if nodes == 0 { 0 } else { depth.min(nodes) as u8 });
        let certain = work.run(self, p, depth, nodes);
        self.certain.push(certain);
        self.ends.push(self.weights.len() as u32);
    }
}

fn check_size(what: &'static str, asked: u64, most: u64, advice: &'static str) -> Result<(), NestedError> {
    if asked > most { Err(NestedError::Size { what, asked, most, advice }) } else { Ok(()) }
}

/// Working memory of one position.
#[derive(Debug, Default)]
struct Work {
    order: PopOrder,
    nodes: Vec<Popped>,
    scores: Vec<f64>,
}

impl Work {
    /// Appends the nodes and rises of one position; answers up to which budget its trees are certain.
    fn run(&mut self, out: &mut Nested, p: &Position, depth: u32, budget: u32) -> u16 {
        let mut rows: [&[f32]; MOST_DEPTH as usize] = [&[]; MOST_DEPTH as usize];
        // What the drafter may give to the best unlisted rank, by row: a probability, found when a tree comes to ask.
        let mut unlisted: [Option<f32>; MOST_DEPTH as usize] = [None; MOST_DEPTH as usize];
        for (i, (row, unlisted)) in rows.iter_mut().zip(&mut unlisted).enumerate().take(depth as usize) {
            let listed = p.row(i as u32 + 1);
            // A tree of B nodes reads no rank beyond B − d at depth d.
            let reach = (budget as usize).saturating_sub(i);
            *row = &listed[..listed.len().min(reach)];
            *unlisted = (listed.len() >= reach).then_some(0.0);
        }
        let rows = &rows[..depth as usize];
        let spine = out.spine;
        let rise = out.rises.len();
        out.rises.resize(rise + out.depth as usize, NEVER);
        let Self { order, nodes, scores } = self;
        nodes.clear();
        scores.clear();
        order.run(rows, spine, budget, |node| {
            nodes.push(node);
            scores.push(node.score);
        });
        let (first, mut taken) = (out.weights.len(), 0u16);
        super::weight::extend(&mut out.weights, scores);
        out.places.extend(nodes.iter().map(|n| (n.depth as u16) << RANK_BITS | n.rank as u16));
        let (rises, weights) = (&mut out.rises[rise..], &out.weights[first..]);
        let (mut tip, mut reached) = (0, 0usize);
        // The most that a candidate missing from the rows could weigh, and the tree size from which it could matter.
        let (mut missing, mut certain) = (0f32, NEVER);
        for (node, &weight) in nodes.iter().zip(weights) {
            let forced = node.rank == 0 && node.depth <= spine && u32::from(taken) + 1 == node.depth;
            if missing >= weight && missing > 0.0 && !forced {
                certain = certain.min(taken);
            }
            taken += 1;
            let level = node.depth as usize - 1;
            if node.parent == tip && level == reached && p.truth.get(reached) == Some(&Some(node.rank)) {
                rises[reached] = taken;
                reached += 1;
                tip = u32::from(taken);
            }
            if node.rank as usize + 1 == rows[level].len() {
                let above = if node.parent == 0 { 1.0 } else { weights[node.parent as usize - 1] };
                missing = missing.max(above * *unlisted[level].get_or_insert_with(|| best_unlisted(rows[level])));
            }
        }
        match u32::from(taken) < budget && missing > 0.0 {
            true => certain.min(taken),
            false => certain,
        }
    }
}

/// The most that the rank behind the last listed one can have: no more than that one, and than what is left of 1.
fn best_unlisted(row: &[f32]) -> f32 {
    let Some(&last) = row.last() else { return 0.0 };
    let listed: f64 = row.iter().map(|&l| f64::from(l).exp()).sum();
    // f32 log-probabilities that sum to 1 may miss it by so much.
    let left = 1.0 - listed;
    if left < 1e-6 { 0.0 } else { f64::from(last).exp().min(left) as f32 }
}
