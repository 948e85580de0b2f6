//! The policy that looks at everything and proposes nothing.

use super::{Frontier, RecordSetup};
use treeline_core::trace::{Expansion, Position};
use treeline_core::{
    Ask, Candidate, DraftView, EngineInfo, Fault, Forest, Grow, Limits, Needs, NodeRef, ROOT, Round, Tree, TreeError,
    TreePolicy,
};

/// The policy that proposes nothing.
pub(super) struct Recorder {
    /// Ranks per row.
    pub width: u32,
    frontier: Frontier,
    /// By index of the request.
    pub positions: Vec<Vec<Position>>,
    /// This round's growth, by sequence.
    growth: Vec<Growth>,
}

/// A node that may be expanded: index of its parent expansion, its rank there, the candidate, its path's score.
type Found = (u32, u32, Candidate, f64);

/// Expansions of one position so far.
#[derive(Default)]
struct Growth {
    position: Position,
    /// Tree node and cumulative log-probability of each expansion.
    nodes: Vec<(u32, f64)>,
    /// The wave that was asked for: expansion parent, rank, tree node, score.
    asked: Vec<(u32, u32, u32, f64)>,
    level: u32,
    done: bool,
}

impl Recorder {
    pub fn new(setup: &RecordSetup<'_>, info: &EngineInfo, requests: usize) -> Self {
        Self {
            width: setup.width.min(info.width),
            frontier: setup.frontier,
            positions: vec![Vec::new(); requests],
            growth: Vec::new(),
        }
    }
}

impl TreePolicy for Recorder {
    fn kind(&self) -> &str {
        "record"
    }

    fn needs(&self, limits: &Limits) -> Needs {
        Needs { depth: limits.depth, width: self.width, waves: true, ..Needs::default() }
    }

    fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<Ask>) {
        self.growth.clear();
        self.growth.resize_with(round.batch.len(), Growth::default);
        ask.extend(round.caps.iter().map(|c| Ask { depth: c.depth, width: self.width, draw: round.draw }));
    }

    fn grow(
        &mut self,
        round: &Round<'_>,
        drafts: &dyn DraftView,
        forest: &mut Forest,
        wave: &mut Vec<NodeRef>,
    ) -> Grow {
        for (seq, growth) in self.growth.iter_mut().enumerate() {
            if growth.done || forest.fault(seq).is_some() {
                continue;
            }
            let depth = drafts.depth(seq as u32);
            let block = depth == 0 || drafts.level(seq as u32, 1).is_some();
            if block {
                growth.position = rows(drafts, seq as u32, depth);
            } else if let Err(fault) = growth.advance(seq as u32, depth, &self.frontier, drafts, forest, wave) {
                forest.fail(seq, fault);
                continue;
            }
            if block || growth.asked.is_empty() {
                growth.done = true;
                // Keeping nothing cannot fail; what was grown leaves the tree.
                let _ = forest.tree_mut(seq).keep(&[]);
                self.positions[round.batch.seqs[seq].index].push(std::mem::take(&mut growth.position));
            }
        }
        if wave.is_empty() { Grow::Done } else { Grow::Expand }
    }
}

/// All rows of a block drafter.
fn rows(drafts: &dyn DraftView, seq: u32, depth: u32) -> Position {
    let mut position = Position::default();
    for row in (1..=depth).map_while(|d| drafts.level(seq, d)) {
        position.logp.extend(row.iter().map(|c| c.logp));
        position.ids.extend(row.iter().map(|c| c.token));
        position.ends.push(position.ids.len() as u32);
    }
    position
}

impl Growth {
    /// Takes in the wave that came back and asks for the next one.
    fn advance(
        &mut self,
        seq: u32,
        depth: u32,
        frontier: &Frontier,
        drafts: &dyn DraftView,
        forest: &mut Forest,
        wave: &mut Vec<NodeRef>,
    ) -> Result<(), Fault> {
        let tree = forest.tree_mut(seq as usize);
        let failed = |e: TreeError| Fault::Policy(format!("recorder: {e}"));
        if self.nodes.is_empty() && self.asked.is_empty() {
            tree.open(u32::MAX - 1);
            self.asked.push((0, 0, ROOT, 0.0));
            // A drafter may have answered for the root at once.
            if drafts.children(NodeRef { seq, node: ROOT, depth: 0 }).is_empty() {
                wave.push(NodeRef { seq, node: ROOT, depth: 0 });
                return Ok(());
            }
        }
        let first = self.nodes.len();
        for (parent, rank, node, score) in std::mem::take(&mut self.asked) {
            let row = drafts.children(NodeRef { seq, node, depth: tree.depths()[node as usize] });
            let (logp, ids) = row.iter().map(|c| (c.logp, c.token)).unzip();
            self.position.expansions.push(Expansion { parent, rank, logp, ids });
            self.nodes.push((node, score));
        }
        self.level += 1;
        let room = frontier.expansions.saturating_sub(self.nodes.len() as u32) as usize;
        if room == 0 || depth <= 1 {
            return Ok(());
        }
        // Level by level through the drafter's depth, each from the level before, the best path always among them; then the
        // best of what is left, by halves, so that what a wave reveals can still compete.
        let mut found = Vec::new();
        if self.level < depth {
            let deeper = (depth - 1 - self.level) as usize;
            let want = (frontier.beam as usize).min(room.saturating_sub(deeper)).max(1);
            found = self.best(first, want, depth, tree);
            self.keep_spine(&mut found, want, depth, tree);
        }
        if found.is_empty() && frontier.beam > 1 {
            found = self.best(0, room.min((room / 2).max(32)), depth, tree);
        }
        for (parent, rank, candidate, score) in found {
            let above = self.nodes[parent as usize].0;
            let node = tree.push(above, candidate.token, rank, score).map_err(failed)?;
            self.asked.push((parent, rank, node, score));
            wave.push(NodeRef { seq, node, depth: tree.depths()[node as usize] });
        }
        Ok(())
    }

    /// Puts the next node of the all-rank-0 path, which a beam may lose, in place of the least probable.
    fn keep_spine(&self, found: &mut Vec<Found>, want: usize, depth: u32, tree: &Tree) {
        let mut spine = 0;
        while let Some(next) = crate::replay::child(&self.position, spine, 0) {
            spine = next;
        }
        let (node, score) = self.nodes[spine as usize];
        let e = &self.position.expansions[spine as usize];
        let best = e.logp.first().zip(e.ids.first()).filter(|(logp, _)| **logp > f32::NEG_INFINITY);
        let Some((&logp, &token)) = best else { return };
        if tree.depths()[node as usize] + 1 < depth && !found.iter().any(|f| (f.0, f.1) == (spine, 0)) {
            found.truncate(want - 1);
            found.push((spine, 0, Candidate { token, logp }, score + f64::from(logp)));
        }
    }

    /// The `want` most probable unexpanded children of the expansions from index `from` on that are not at the last level.
    fn best(&self, from: usize, want: usize, depth: u32, tree: &Tree) -> Vec<(u32, u32, Candidate, f64)> {
        let mut found = Vec::new();
        for (parent, e) in self.position.expansions.iter().enumerate().skip(from) {
            let (node, score) = self.nodes[parent];
            if tree.depths()[node as usize] + 1 >= depth {
                continue;
            }
            for (rank, (&logp, &token)) in (0..).zip(e.logp.iter().zip(&e.ids)) {
                let taken = crate::replay::child(&self.position, parent as u32, rank).is_some();
                if !taken && logp > f32::NEG_INFINITY {
                    found.push((parent as u32, rank, Candidate { token, logp }, score + f64::from(logp)));
                }
            }
        }
        found.sort_by(|a, b| b.3.total_cmp(&a.3).then((a.0, a.1).cmp(&(b.0, b.1))));
        found.truncate(want);
        found
    }
}
