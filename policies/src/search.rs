//! Best-first growth over any draft: a heap per request, or one over the whole batch.
//!
//! On a block draft every row is known, and the heap is run once. On a conditional draft it is run over the rows that are
//! known so far; the unexpanded nodes of its outcome are expanded in a wave and it is run again, until every node that
//! could still lend a child is expanded. Fewer known rows mean fewer rivals, so a node of the final tree is in the outcome
//! of every run that knows its parent's row: the result is exactly the best-first tree, whatever the beam, and after
//! `depth` waves of unlimited beam at the latest.

use crate::heap::{Heap, Item};
use crate::lattice::Staircase;
use crate::order::Place;
use std::ops::Range;
use treeline_core::{Candidate, DraftView, Fault, Forest, Grow, NodeRef, ROOT};

const NONE: u32 = u32::MAX;

/// What to grow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    /// Rank-0 levels that are placed first, whatever their score.
    pub spine: u32,
    /// Nodes expanded per request and wave.
    pub beam: u32,
}

/// What is known of one sequence's working tree.
#[derive(Debug, Default)]
struct Work {
    started: bool,
    block: bool,
    done: bool,
    depth: u32,
    /// By working node: whether its row is known.
    expanded: Vec<bool>,
    /// By working node: its rank-0 child, and its sibling of the next rank.
    first: Vec<u32>,
    next: Vec<u32>,
    /// The outcome of the last run, in order of selection.
    order: Vec<u32>,
}

impl Work {
    fn push(&mut self) {
        self.expanded.push(false);
        self.first.push(NONE);
        self.next.push(NONE);
    }
}

/// Working memory of best-first growth.
#[derive(Debug, Default)]
pub(crate) struct Search {
    seqs: Vec<Work>,
    heap: Heap,
    staircase: Staircase,
}

impl Search {
    /// Forgets the last round.
    pub fn begin(&mut self, seqs: usize) {
        self.seqs.resize_with(self.seqs.len().max(seqs), Work::default);
        for work in &mut self.seqs[..seqs] {
            work.started = false;
            work.done = false;
        }
    }

    /// Grows every tree on its own to `budget(seq)` nodes (its cap at the most).
    pub fn each(
        &mut self,
        rule: Rule,
        budget: impl Fn(usize) -> u32,
        drafts: &dyn DraftView,
        forest: &mut Forest,
        wave: &mut Vec<NodeRef>,
    ) -> Grow {
        for seq in 0..forest.len() {
            if !self.fast(seq, budget(seq), rule, drafts, forest) {
                self.run(seq..seq + 1, budget(seq), rule, drafts, forest, wave);
            }
        }
        self.finish(forest, wave)
    }

    /// The fast form, where it applies; `true` when the sequence needs nothing more.
    fn fast(&mut self, seq: usize, budget: u32, rule: Rule, drafts: &dyn DraftView, forest: &mut Forest) -> bool {
        if forest.fault(seq).is_some() || self.seqs[seq].done {
            return true;
        }
        if !self.seqs[seq].started {
            self.start(seq, drafts, forest);
        }
        let Work { block, depth, ref mut done, .. } = self.seqs[seq];
        let tree = forest.tree_mut(seq);
        let budget = budget.min(tree.budget());
        *done = block && self.staircase.grow(seq as u32, depth, rule.spine, budget, drafts, tree);
        *done
    }

    /// Grows all trees from one heap to `total` nodes, each to its cap at the most.
    pub fn shared(
        &mut self,
        rule: Rule,
        total: u32,
        drafts: &dyn DraftView,
        forest: &mut Forest,
        wave: &mut Vec<NodeRef>,
    ) -> Grow {
        self.run(0..forest.len(), total, rule, drafts, forest, wave);
        self.finish(forest, wave)
    }

    fn finish(&mut self, forest: &mut Forest, wave: &mut [NodeRef]) -> Grow {
        if !wave.is_empty() {
            // Drafters take a wave by sequence and node.
            wave.sort_unstable();
            return Grow::Expand;
        }
        for seq in 0..forest.len() {
            let work = &self.seqs[seq];
            if work.started
                && !work.block
                && forest.fault(seq).is_none()
                && let Err(e) = forest.tree_mut(seq).keep(&work.order)
            {
                forest.fail(seq, Fault::Policy(e.to_string()));
            }
        }
        Grow::Done
    }

    fn start(&mut self, seq: usize, drafts: &dyn DraftView, forest: &mut Forest) {
        let work = &mut self.seqs[seq];
        work.started = true;
        work.depth = forest.tree(seq).depth_limit().min(drafts.depth(seq as u32));
        work.block = work.depth > 0 && drafts.level(seq as u32, 1).is_some();
        work.order.clear();
        if work.block || work.depth == 0 {
            return;
        }
        forest.tree_mut(seq).open(u32::MAX - 1);
        work.expanded.clear();
        work.first.clear();
        work.next.clear();
        work.push();
        // A drafter may have answered for the root at once.
        work.expanded[ROOT as usize] = !drafts.children(NodeRef { seq: seq as u32, node: ROOT, depth: 0 }).is_empty();
    }

    fn run(
        &mut self,
        group: Range<usize>,
        total: u32,
        rule: Rule,
        drafts: &dyn DraftView,
        forest: &mut Forest,
        wave: &mut Vec<NodeRef>,
    ) {
        let asked = wave.len();
        let mut left = total;
        let mut last = None;
        self.heap.clear();
        for seq in group.clone() {
            if forest.fault(seq).is_some() || self.seqs[seq].done {
                continue;
            }
            if !self.seqs[seq].started {
                self.start(seq, drafts, forest);
            }
            self.seqs[seq].order.clear();
            self.seed(seq, rule.spine, &mut left, &mut last, drafts, forest);
        }
        while left > 0
            && let Some(item) = self.heap.pop(forest)
        {
            let seq = item.seq as usize;
            if self.selected(seq, forest) >= forest.tree(seq).budget() {
                continue;
            }
            let depth = forest.tree(seq).depths()[item.place.parent as usize] + 1;
            let row = row(drafts, self.seqs[seq].block, item.seq, item.place.parent, depth);
            let Some(node) = self.select(item, row[item.place.rank as usize].token, forest) else { continue };
            left -= 1;
            last = Some((seq, node));
            self.offer(item.seq, Place { rank: item.place.rank + 1, ..item.place }, node, row, forest);
            self.offer_child(seq, node, depth, drafts, forest);
        }
        if left > 0 {
            last = None;
        }
        for seq in group.clone() {
            self.wave_of(seq, rule.beam, last, forest, wave);
        }
        // A run over one request alone is final once nothing of it is left to expand.
        if group.len() == 1 && !wave[asked..].iter().any(|w| w.seq as usize == group.start) {
            self.seqs[group.start].done = true;
        }
    }

    /// Places the spine and offers what hangs off it.
    fn seed(
        &mut self,
        seq: usize,
        spine: u32,
        left: &mut u32,
        last: &mut Option<(usize, u32)>,
        drafts: &dyn DraftView,
        forest: &mut Forest,
    ) {
        let mut node = ROOT;
        let mut depth = 0;
        while depth < spine.min(self.seqs[seq].depth) && *left > 0 && depth < forest.tree(seq).budget() {
            if !self.seqs[seq].block && !self.seqs[seq].expanded[node as usize] {
                break;
            }
            let row = row(drafts, self.seqs[seq].block, seq as u32, node, depth + 1);
            let Some(best) = row.first().filter(|c| c.logp > f32::NEG_INFINITY) else { break };
            let score = forest.tree(seq).scores()[node as usize] + f64::from(best.logp);
            let item = Item { score, seq: seq as u32, place: Place { parent: node, rank: 0 }, prev: NONE };
            let Some(child) = self.select(item, best.token, forest) else { break };
            *left -= 1;
            *last = Some((seq, child));
            self.offer(seq as u32, Place { parent: node, rank: 1 }, child, row, forest);
            node = child;
            depth += 1;
        }
        self.offer_child(seq, node, depth, drafts, forest);
    }

    /// Nodes selected so far in this run.
    fn selected(&self, seq: usize, forest: &Forest) -> u32 {
        let work = &self.seqs[seq];
        if work.block { forest.tree(seq).nodes() } else { work.order.len() as u32 }
    }

    /// Puts an item's node into the tree, or finds it there.
    fn select(&mut self, item: Item, token: u32, forest: &mut Forest) -> Option<u32> {
        let tree = forest.tree_mut(item.seq as usize);
        let work = &mut self.seqs[item.seq as usize];
        let Place { parent, rank } = item.place;
        if work.block {
            return tree.push(parent, token, rank, item.score).ok();
        }
        let slot = if rank == 0 { &mut work.first[parent as usize] } else { &mut work.next[item.prev as usize] };
        if *slot == NONE {
            *slot = tree.push(parent, token, rank, item.score).ok()?;
            work.order.push(*slot);
            work.push();
        } else {
            work.order.push(*slot);
        }
        work.order.last().copied()
    }

    fn offer_child(&mut self, seq: usize, node: u32, depth: u32, drafts: &dyn DraftView, forest: &Forest) {
        let work = &self.seqs[seq];
        if depth < work.depth && (work.block || work.expanded[node as usize]) {
            let row = row(drafts, work.block, seq as u32, node, depth + 1);
            self.offer(seq as u32, Place { parent: node, rank: 0 }, NONE, row, forest);
        }
    }

    fn offer(&mut self, seq: u32, place: Place, prev: u32, row: &[Candidate], forest: &Forest) {
        // Not `>=`, so that NaN is left out with −∞.
        if let Some(c) = row.get(place.rank as usize)
            && c.logp > f32::NEG_INFINITY
        {
            let score = forest.tree(seq as usize).scores()[place.parent as usize] + f64::from(c.logp);
            self.heap.push(Item { score, seq, place, prev }, forest);
        }
    }

    /// Asks for the rows that the outcome of this run still lacks.
    fn wave_of(&mut self, seq: usize, beam: u32, last: Option<(usize, u32)>, forest: &Forest, wave: &mut Vec<NodeRef>) {
        let work = &mut self.seqs[seq];
        if forest.fault(seq).is_some() || work.done || work.block || work.depth == 0 || forest.tree(seq).budget() == 0 {
            return;
        }
        let tree = forest.tree(seq);
        let mut room = beam.max(1);
        for &node in std::iter::once(&ROOT).chain(&work.order) {
            let depth = tree.depths()[node as usize];
            // The last node of a full tree has no room for a child.
            if room == 0 || last == Some((seq, node)) {
                break;
            }
            if !work.expanded[node as usize] && depth < work.depth {
                work.expanded[node as usize] = true;
                wave.push(NodeRef { seq: seq as u32, node, depth });
                room -= 1;
            }
        }
    }
}

/// The candidates below `node`; `depth` is theirs.
fn row(drafts: &dyn DraftView, block: bool, seq: u32, node: u32, depth: u32) -> &[Candidate] {
    if block {
        drafts.level(seq, depth).unwrap_or(&[])
    } else {
        drafts.children(NodeRef { seq, node, depth: depth - 1 })
    }
}
