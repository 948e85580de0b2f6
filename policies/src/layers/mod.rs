//! Growth from a pool of candidates: nodes are expanded wave by wave, all their best children enter the pool, and at the
//! end a selection of the pool becomes the tree. What top-k, OPT-Tree, SpecExec and TALON share.

mod pool;

use crate::best_first::{ask_full, full_needs};
pub(crate) use pool::Pool;
use pool::{Candidate, NONE};
use treeline_core::{Ask, DraftView, Fault, Forest, Grow, Limits, Needs, NodeRef, ROOT, Round, TreePolicy};

/// What distinguishes the policies that grow from a pool.
pub(crate) trait Pooled: Send + 'static {
    /// The `kind` used in files.
    fn kind(&self) -> &'static str;

    /// What the policy needs: by default whatever a tree of the budget can read.
    fn needs(&self, limits: &Limits) -> Needs {
        full_needs(limits)
    }

    /// What it asks the drafter for: by default whatever a tree of the caps can read.
    fn ask(&self, round: &Round<'_>, ask: &mut Vec<Ask>) {
        ask_full(round, ask);
    }

    /// Children of an expanded node that enter the pool.
    fn width(&self, pool: &Pool) -> u32;

    /// Added to the key per level; 0 or less.
    fn discount(&self) -> f64 {
        0.0
    }

    /// Chooses what to expand next: pushes candidates that are neither expanded nor at the deepest level. None = stop.
    fn choose(&mut self, pool: &mut Pool, beam: &mut Vec<u32>);

    /// The final tree: pool candidates, parents before children, at most the budget.
    fn select(&mut self, pool: &mut Pool, order: &mut Vec<u32>);
}

#[derive(Debug, Default)]
struct Growth {
    pool: Pool,
    started: bool,
    done: bool,
    block: bool,
    /// Candidates whose rows arrive with this wave.
    beam: Vec<u32>,
}

/// The policy that a [`Pooled`] rule makes.
#[derive(Debug)]
pub(crate) struct Layered<R> {
    rule: R,
    layers: Layers,
}

impl<R: Pooled> Layered<R> {
    /// A policy that grows by `rule`.
    pub fn boxed(rule: R) -> Box<dyn TreePolicy> {
        Box::new(Self { rule, layers: Layers::default() })
    }
}

impl<R: Pooled> TreePolicy for Layered<R> {
    fn kind(&self) -> &str {
        self.rule.kind()
    }

    fn needs(&self, limits: &Limits) -> Needs {
        self.rule.needs(limits)
    }

    fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<Ask>) {
        self.layers.begin(round.batch.len());
        self.rule.ask(round, ask);
    }

    fn grow(
        &mut self,
        _round: &Round<'_>,
        drafts: &dyn DraftView,
        forest: &mut Forest,
        wave: &mut Vec<NodeRef>,
    ) -> Grow {
        self.layers.grow(&mut self.rule, drafts, forest, wave)
    }
}

/// Drives a [`Pooled`] rule over a batch.
#[derive(Debug, Default)]
struct Layers {
    seqs: Vec<Growth>,
    order: Vec<u32>,
}

impl Layers {
    /// Forgets the last round.
    fn begin(&mut self, seqs: usize) {
        self.seqs.resize_with(self.seqs.len().max(seqs), Growth::default);
        for growth in &mut self.seqs[..seqs] {
            growth.started = false;
            growth.done = false;
        }
    }

    /// Grows every tree; to be called until it answers [`Grow::Done`].
    fn grow(
        &mut self,
        rule: &mut impl Pooled,
        drafts: &dyn DraftView,
        forest: &mut Forest,
        wave: &mut Vec<NodeRef>,
    ) -> Grow {
        for seq in 0..forest.len() {
            let growth = &mut self.seqs[seq];
            if growth.done || forest.fault(seq).is_some() {
                continue;
            }
            if !growth.started {
                growth.start(seq, drafts, forest);
            }
            if growth.advance(seq, rule, drafts, forest, wave) {
                continue;
            }
            growth.done = true;
            self.order.clear();
            if growth.pool.budget > 0 {
                rule.select(&mut growth.pool, &mut self.order);
            }
            if let Err(e) = growth.write(seq, &mut self.order, forest) {
                forest.fail(seq, Fault::Policy(e.to_string()));
            }
        }
        // Drafters take a wave by sequence and node.
        wave.sort_unstable();
        if wave.is_empty() { Grow::Done } else { Grow::Expand }
    }
}

impl Growth {
    fn start(&mut self, seq: usize, drafts: &dyn DraftView, forest: &mut Forest) {
        let tree = forest.tree_mut(seq);
        self.started = true;
        let pool = &mut self.pool;
        pool.budget = tree.budget();
        pool.depth = tree.depth_limit().min(drafts.depth(seq as u32));
        pool.waves = 0;
        pool.floor = f64::NEG_INFINITY;
        pool.value = 0.0;
        pool.kept.clear();
        pool.fresh = 1;
        pool.items.clear();
        let root =
            Candidate { parent: ROOT, rank: 0, depth: 0, token: 0, score: 0.0, key: 0.0, node: ROOT, expanded: false };
        pool.items.push(root);
        self.block = pool.depth > 0 && drafts.level(seq as u32, 1).is_some();
        self.beam.clear();
        if pool.depth > 0 && pool.budget > 0 {
            self.beam.push(ROOT);
        }
        if !self.block {
            tree.open(u32::MAX - 1);
        }
    }

    /// Takes in what is known and asks for more; `false` when there is nothing to wait for.
    fn advance(
        &mut self,
        seq: usize,
        rule: &mut impl Pooled,
        drafts: &dyn DraftView,
        forest: &mut Forest,
        wave: &mut Vec<NodeRef>,
    ) -> bool {
        let seq = seq as u32;
        loop {
            if self.beam.is_empty() {
                return false;
            }
            // A drafter may have answered for the root at once; any other row of a conditional draft needs a wave.
            let known = |pool: &Pool, i: u32| {
                pool.get(i).expanded || !drafts.children(NodeRef { seq, node: pool.get(i).node, depth: 0 }).is_empty()
            };
            let waiting = !self.block
                && match self.beam[..] {
                    [ROOT] => !known(&self.pool, ROOT),
                    _ => self.beam.iter().any(|&i| !self.pool.get(i).expanded),
                };
            for &i in &self.beam {
                self.pool.items[i as usize].expanded = true;
            }
            if waiting {
                for &i in &self.beam {
                    wave.push(NodeRef { seq, node: self.pool.get(i).node, depth: self.pool.get(i).depth });
                }
                return true;
            }
            self.take_in(seq, rule.width(&self.pool), rule.discount(), drafts);
            self.beam.clear();
            rule.choose(&mut self.pool, &mut self.beam);
            if !self.block {
                for k in 0..self.beam.len() {
                    if place(&mut self.pool.items, self.beam[k], forest.tree_mut(seq as usize)).is_err() {
                        return false;
                    }
                }
            }
        }
    }

    fn take_in(&mut self, seq: u32, width: u32, discount: f64, drafts: &dyn DraftView) {
        let pool = &mut self.pool;
        pool.waves += 1;
        pool.fresh = pool.items.len() as u32;
        for &parent in &self.beam {
            let Candidate { depth, score, key, node, .. } = *pool.get(parent);
            let row = if self.block {
                drafts.level(seq, depth + 1).unwrap_or(&[])
            } else {
                drafts.children(NodeRef { seq, node, depth })
            };
            for (c, rank) in row.iter().take(width as usize).zip(0..) {
                let path = score + f64::from(c.logp);
                let key = key.min(path + discount * f64::from(depth + 1));
                // Rows descend, so the rest of the row is no better. NaN ends a row as −∞ does.
                if c.logp.is_nan() || c.logp == f32::NEG_INFINITY || key < pool.floor {
                    break;
                }
                let place = Candidate {
                    parent,
                    rank,
                    depth: depth + 1,
                    token: c.token,
                    score: path,
                    key,
                    node: NONE,
                    expanded: false,
                };
                pool.items.push(place);
            }
        }
    }

    fn write(&mut self, seq: usize, order: &mut [u32], forest: &mut Forest) -> Result<(), treeline_core::TreeError> {
        let tree = forest.tree_mut(seq);
        for i in order.iter_mut() {
            *i = place(&mut self.pool.items, *i, tree)?;
        }
        if self.block { Ok(()) } else { tree.keep(order) }
    }
}

/// The tree node of a candidate whose parent is in the tree.
fn place(items: &mut [Candidate], i: u32, tree: &mut treeline_core::Tree) -> Result<u32, treeline_core::TreeError> {
    let Candidate { parent, rank, token, score, node, .. } = items[i as usize];
    if node != NONE {
        return Ok(node);
    }
    let node = tree.push(items[parent as usize].node, token, rank, score)?;
    items[i as usize].node = node;
    Ok(node)
}
