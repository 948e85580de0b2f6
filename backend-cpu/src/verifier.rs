//! The target: one forward pass over the trees of a batch, judged by the core's laws, and the commit of accepted paths.

use crate::clock::Clock;
use crate::features::CpuFeatures;
use crate::kv::SeqKv;
use crate::model::{Model, Work, buffer};
use crate::plan::Plan;
use crate::seeded::{Seeded, seeded};
use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};
use treeline_core::law::{Scratch, Walk, first_token, judge, settle};
use treeline_core::{Batch, DraftView, Error, Fault, Forest, Law, Phase, Request, RoundLog, Rows, Step, Verifier};

/// The target model with the caches of all slots.
#[derive(Debug)]
pub struct CpuVerifier {
    pub(crate) model: Arc<Model>,
    pub(crate) kvs: Vec<SeqKv>,
    /// Layers whose outputs the drafter reads.
    pub(crate) taps: Vec<usize>,
    pub(crate) plan: Plan,
    pub(crate) work: Work,
    pub(crate) clock: Clock,
    pub(crate) scratch: Scratch,
    norm: Vec<f32>,
    roots: Vec<f32>,
    root_logits: Vec<f32>,
    pool: RefCell<Vec<Vec<f32>>>,
}

/// Outcome of one pass: per sequence what it gets, and where its rows stand in the pass.
#[derive(Debug)]
pub struct CpuVerdict {
    results: Vec<Result<Step, Fault>>,
    /// First row of each sequence.
    first: Vec<usize>,
    experts: Vec<u32>,
}

/// Logits of one tree, computed when the walk asks for them: it visits a handful of rows, and the head is as much work as
/// several layers.
struct LazyRows<'a> {
    model: &'a Model,
    /// Residual rows of this tree.
    x: &'a [f32],
    root: &'a [f32],
    rows: Vec<OnceCell<Vec<f32>>>,
    norm: RefCell<&'a mut Vec<f32>>,
    pool: &'a RefCell<Vec<Vec<f32>>>,
    time: Cell<Duration>,
}

impl Rows for LazyRows<'_> {
    fn logits(&self, row: u32) -> &[f32] {
        let row = if seeded(Seeded::OwnRow) { (row + 1).min(self.rows.len() as u32 - 1) } else { row };
        if row == 0 {
            return self.root;
        }
        self.rows[row as usize].get_or_init(|| {
            let begin = Instant::now();
            let (vocab, hidden) = (self.model.config().vocab, self.model.config().hidden);
            let mut out = self.pool.borrow_mut().pop().unwrap_or_default();
            out.resize(vocab, 0.0);
            self.model.logits(&self.x[row as usize * hidden..][..hidden], 1, &mut self.norm.borrow_mut(), &mut out);
            self.time.set(self.time.get() + begin.elapsed());
            out
        })
    }
}

impl CpuVerifier {
    pub(crate) fn new(model: Arc<Model>, slots: usize, taps: Vec<usize>) -> Self {
        let kvs = (0..slots).map(|_| SeqKv::new(model.kv_shape())).collect();
        Self {
            model,
            kvs,
            taps,
            plan: Plan::default(),
            work: Work::default(),
            clock: Clock::new(),
            scratch: Scratch::default(),
            norm: Vec::new(),
            roots: Vec::new(),
            root_logits: Vec::new(),
            pool: RefCell::default(),
        }
    }

    /// Runs the rows of `self.plan`.
    pub(crate) fn forward(&mut self) {
        self.model.forward(&self.plan, &mut self.kvs, &self.taps, &mut self.work);
    }

    /// The first token of a response, from the last prompt row (row `row` of the last pass).
    pub(crate) fn first_token(&mut self, row: usize, law: &Law<'_>, request: &Request) -> Result<u32, Fault> {
        let (vocab, hidden) = (self.model.config().vocab, self.model.config().hidden);
        let out = buffer(&mut self.root_logits, vocab);
        self.model.logits(&self.work.x[row * hidden..][..hidden], 1, &mut self.norm, out);
        first_token(law, request, out, &mut self.scratch)
    }

    /// Logits of every sequence's root, in one product.
    fn root_rows(&mut self) {
        let (vocab, hidden) = (self.model.config().vocab, self.model.config().hidden);
        let count = self.plan.spans.len();
        let roots = buffer(&mut self.roots, count * hidden);
        for (to, span) in roots.chunks_exact_mut(hidden).zip(&self.plan.spans) {
            to.copy_from_slice(&self.work.x[span.rows.start * hidden..][..hidden]);
        }
        let out = buffer(&mut self.root_logits, count * vocab);
        self.model.logits(roots, count, &mut self.norm, out);
    }

    /// Why a tree is not verified: its own fault, or a token that the model has no row for.
    fn unusable(&self, forest: &Forest, at: usize) -> Option<Fault> {
        let vocab = self.model.config().vocab as u32;
        let outside = || forest.tree(at).tokens().iter().find(|t| **t >= vocab);
        let fault = |token| Fault::Policy(format!("token {token} of the tree is outside the vocabulary of {vocab}"));
        forest.fault(at).cloned().or_else(|| outside().map(fault))
    }

    /// Tapped outputs of one row of the last pass.
    pub(crate) fn row_taps(&self, row: usize) -> &[f32] {
        let width = self.taps.len() * self.model.config().hidden;
        &self.work.taps[row * width..][..width]
    }
}

impl CpuVerdict {
    /// What each sequence gets, in batch order.
    #[cfg(test)]
    pub(crate) fn results(&self) -> &[Result<Step, Fault>] {
        &self.results
    }
}

impl Verifier for CpuVerifier {
    type Features = CpuFeatures;
    type Verdict = CpuVerdict;

    fn verify(
        &mut self,
        batch: &Batch,
        forest: &Forest,
        drafts: &dyn DraftView,
        law: &Law<'_>,
    ) -> Result<CpuVerdict, Error> {
        self.plan.clear(true);
        let mut first = Vec::with_capacity(batch.len());
        for (at, seq) in batch.iter().enumerate() {
            first.push(self.plan.len());
            if self.unusable(forest, at).is_none() {
                let tree = forest.tree(at);
                self.plan.tree(seq.slot as usize, seq.start as usize, tree.tokens(), tree.parents(), tree.depths());
            }
        }
        if self.plan.len() > 0 {
            self.forward();
            self.root_rows();
        } else {
            self.work.experts.clear();
        }
        self.clock.mark(Phase::Walk);

        let (vocab, hidden) = (self.model.config().vocab, self.model.config().hidden);
        let mut results = Vec::with_capacity(batch.len());
        let (mut span, mut late) = (0, Duration::ZERO);
        for (at, seq) in batch.iter().enumerate() {
            if let Some(fault) = self.unusable(forest, at) {
                results.push(Err(fault));
                continue;
            }
            let tree = forest.tree(at);
            if seeded(Seeded::UniformStride) {
                first[at] = at * forest.tree(0).rows() as usize;
            }
            let rows = LazyRows {
                model: &self.model,
                x: &self.work.x[first[at] * hidden..],
                root: &self.root_logits[span * vocab..(span + 1) * vocab],
                rows: (0..tree.rows()).map(|_| OnceCell::new()).collect(),
                norm: RefCell::new(&mut self.norm),
                pool: &self.pool,
                time: Cell::new(Duration::ZERO),
            };
            span += 1;
            let law = if seeded(Seeded::AlwaysGreedy) { &Law::Greedy } else { law };
            let mut walk = judge(law, at as u32, seq, tree, &rows, drafts, &mut self.scratch);
            if seeded(Seeded::NanIsTokenZero) && walk.is_err() {
                walk = Ok(Walk { path: Vec::new(), bonus: 0 });
            }
            if let (Law::Forced(_), Ok(walk)) = (law, &walk) {
                // The verdict comes from a trace, the pass is run all the same: as much of the head as a walk would need.
                for &node in &walk.path {
                    rows.logits(node);
                }
            }
            late += rows.time.get();
            let used = rows.rows.into_iter().filter_map(OnceCell::into_inner);
            self.pool.borrow_mut().extend(used);
            results.push(walk.map(|walk| settle(seq, tree, &walk)));
        }
        self.clock.shift(Phase::Walk, Phase::Verify, late);
        Ok(CpuVerdict { results, first, experts: self.work.experts.clone() })
    }

    fn commit(
        &mut self,
        batch: &Batch,
        forest: &Forest,
        verdict: CpuVerdict,
        features: &mut CpuFeatures,
        log: &mut RoundLog,
    ) -> Result<(), Error> {
        let mut offsets = Vec::new();
        for (at, (seq, result)) in batch.iter().zip(verdict.results).enumerate() {
            if let Ok(step) = &result
                && step.end.is_none()
            {
                offsets.clear();
                offsets.push(0);
                offsets.extend(&step.path);
                if !seeded(Seeded::ScatteredPath) {
                    self.kvs[seq.slot as usize].gather(seq.start as usize, &offsets);
                }
                let slot = &mut features.slots[seq.slot as usize];
                for (i, &node) in offsets.iter().enumerate() {
                    let token = forest.tree(at).tokens()[node as usize];
                    let row = if seeded(Seeded::RejectedFeatures) { i } else { node as usize };
                    slot.push(token, self.row_taps(verdict.first[at] + row));
                }
            }
            log.results.push(result);
        }
        log.experts = verdict.experts;
        Ok(())
    }
}
