//! The target: one pass over the trees of a batch, judged, and the commit of accepted paths.

use super::buckets::{Buckets, graph_id};
use super::clock::Clock;
use super::features::{Absorb, CudaFeatures};
use super::graphs::Graphs;
use super::judge::{DeviceRows, descend};
use super::pick::Pick;
use super::prefill::Prefill;
use super::routing::{Routing, RoutingModel};
use super::settings::CudaSettings;
use super::state::{Field, State};
use crate::device::{Buffer, Gpu, Pinned, Ptr};
use crate::error::{CudaError, Result as CudaResult};
use crate::model::{Cache, Head, Target, Work};
use crate::ops::gather::GatherKv;
use crate::ops::rows::{Bucket, RowPlan, Sight};
use crate::ops::sample::{Sample, SampleArgs};
use std::sync::Arc;
use treeline_checkpoint::Ffn;
use treeline_core::law::{Scratch, first_token, judge, settle};
use treeline_core::{Batch, DraftView, Error, Fault, Forest, Law, Phase, Request, RoundLog, Step, Verifier};

/// The target model on the device with the caches of all slots.
#[derive(Debug)]
pub struct CudaVerifier {
    pub(super) gpu: Gpu,
    pub(super) target: Arc<Target>,
    pub(super) cache: Cache,
    /// Cache rows of a slot.
    pub(super) stride: u32,
    /// Cache row where padding writes.
    pub(super) sink: u32,
    pub(super) work: Work,
    pub(super) plan: RowPlan,
    pub(super) buckets: Buckets,
    pub(super) state: State,
    pub(super) sample: Sample,
    /// Chosen token of each row.
    pub(super) tokens: Buffer<u32>,
    pub(super) clock: Clock,
    pub(super) forwards: Graphs<(Bucket, Pick)>,
    pub(super) commits: Graphs<u32>,
    pub(super) gatherer: GatherKv,
    prefill: Prefill,
    routing: Option<Routing>,
    /// Chosen tokens and expert counts of the last pass.
    pulled: Pinned<u32>,
    experts: Pinned<u32>,
    scratch: Scratch,
}

/// Outcome of one pass: per sequence what it gets, and what the log says of the pass.
#[derive(Debug)]
pub struct CudaVerdict {
    results: Vec<Result<Step, Fault>>,
    graph: Option<u32>,
    experts: Vec<u32>,
}

impl CudaVerdict {
    /// What each sequence gets, in batch order.
    pub fn results(&self) -> &[Result<Step, Fault>] {
        &self.results
    }

    /// Which graph ran; `None` = eager.
    #[must_use]
    pub fn graph(&self) -> Option<u32> {
        self.graph
    }

    /// Distinct routed experts by MoE layer.
    #[must_use]
    pub fn experts(&self) -> &[u32] {
        &self.experts
    }
}

/// An error that ends the run.
pub(super) fn broken(e: CudaError) -> Error {
    Error::Engine(e.to_string())
}

impl CudaVerifier {
    pub(super) fn new(
        gpu: &Gpu,
        target: Arc<Target>,
        settings: &CudaSettings,
        taps: &[usize],
        (stride, path): (u32, u32),
    ) -> CudaResult<Self> {
        let sink = settings.slots * stride;
        let most = Bucket { rows: settings.rows, seqs: settings.slots };
        let cache = target.cache(gpu, sink as usize + 1)?;
        Ok(Self {
            gatherer: GatherKv::new(gpu, cache.row_bytes())?,
            routing: None,
            prefill: Prefill::new(gpu, &target, settings.chunk, sink, taps)?,
            work: target.work(gpu, most, taps)?,
            plan: RowPlan::new(gpu, settings.rows as usize, settings.slots as usize, sink)?,
            buckets: Buckets { most },
            state: State::new(gpu, settings.slots, path)?,
            sample: Sample::new(gpu, target.logits_width(), settings.rows as usize)?,
            tokens: gpu.zeroed("chosen tokens", settings.rows as usize)?,
            pulled: gpu.pinned(settings.rows as usize)?,
            experts: gpu.pinned(target.moe_layers())?,
            clock: Clock::new(),
            forwards: Graphs::new(settings.graphs),
            commits: Graphs::new(settings.graphs),
            scratch: Scratch::default(),
            stride,
            sink,
            cache,
            target,
            gpu: gpu.clone(),
        })
    }

    /// Logits of one row of the last verify pass; rows count over the whole batch, sequence after sequence.
    ///
    /// # Errors
    /// [`CudaError::Setting`] for a row that the pass did not have, or the driver's.
    pub fn logits(&self, row: u32) -> CudaResult<Vec<f32>> {
        if row >= self.buckets.most.rows {
            let problem = format!("{row} is beyond the {} that the engine was made for", self.buckets.most.rows);
            return Err(CudaError::Setting { key: "row", problem });
        }
        let width = self.target.logits_width();
        self.gpu.read(self.work.logits().offset(row as usize * width * size_of::<f32>()), width)
    }

    /// From now on routing comes from a model of it. To be called before anything is captured.
    pub(super) fn route(&mut self, model: RoutingModel) -> CudaResult<()> {
        let experts = self.target.config().layers.iter().find_map(|layer| match &layer.ffn {
            Ffn::Moe(moe) => Some(moe.experts as u32),
            Ffn::Dense { .. } => None,
        });
        // A dense model has nothing to route.
        let Some(experts) = experts else { return Ok(()) };
        let (layers, top_k) = (self.target.moe_layers(), self.target.top_k());
        self.work.force(&self.gpu)?;
        let rows = self.buckets.most.rows as usize;
        self.routing = Some(Routing::new(&self.gpu, model, experts, layers, rows, top_k)?);
        Ok(())
    }

    /// Checks that a pass of `rows` real rows ran the experts that it was told to.
    pub(super) fn check_routing(&self, rows: usize) -> CudaResult<()> {
        self.routing.as_ref().map_or(Ok(()), |routing| routing.check(rows, &self.experts()))
    }

    /// The target's cache.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// First cache row of a slot.
    #[must_use]
    pub fn kv(&self, slot: u32) -> u32 {
        slot * self.stride
    }

    /// Runs a prompt chunk of one slot. Leaves its taps, and with `last` the logits of its last row.
    pub(super) fn chunk(&mut self, slot: u32, start: u32, tokens: &[u32], last: bool) -> CudaResult<()> {
        let kv = self.kv(slot);
        self.prefill.run(&self.gpu, &self.target, &self.cache, (kv, start), tokens, last)
    }

    /// Taps of the last chunk, as padded as its pass: the drafter's cache has the same rows as the target's.
    pub(super) fn chunk_taps(&self) -> Absorb {
        self.prefill.taps()
    }

    /// The first token of a response, behind the last chunk.
    pub(super) fn first_token(&mut self, law: &Law<'_>, request: &Request) -> Result<u32, Fault> {
        let logits: CudaResult<Vec<f32>> = self.gpu.read(self.prefill.logits(), self.target.logits_width());
        let logits = logits.map_err(|e| Fault::Request(e.to_string()))?;
        first_token(law, request, &logits, &mut self.scratch)
    }

    /// Why a tree is not verified: its own fault, or a token that the model has no row for.
    pub(super) fn unusable(&self, forest: &Forest, at: usize) -> Option<Fault> {
        let vocab = self.target.config().vocab as u32;
        let outside = || forest.tree(at).tokens().iter().find(|t| **t >= vocab);
        let fault = |token| Fault::Policy(format!("token {token} of the tree is outside the vocabulary of {vocab}"));
        forest.fault(at).cloned().or_else(|| outside().map(fault))
    }

    /// Queues the pass over the rows that lie in the plan, and its choice of tokens; returns the number of its graph.
    pub(super) fn forward(&mut self, bucket: Bucket, pick: Pick) -> CudaResult<Option<u32>> {
        let (gpu, target, cache, work) = (&self.gpu, &self.target, &self.cache, &self.work);
        let plan = self.plan.ptrs();
        let (sample, stride) = (&self.sample, target.logits_width());
        let (sampling, out) = (self.state.at(Field::Sampling), self.tokens.ptr());
        let picks = self.routing.as_mut().map_or(0, |routing| routing.next(bucket.rows as usize));
        let routing = self.routing.as_ref().zip(work.forced());
        let ran = self.forwards.run(gpu, (bucket, pick), || {
            if let Some((routing, forced)) = routing {
                gpu.push(forced.ptr(), &routing.pinned, picks)?;
            }
            target.forward(gpu, bucket, plan, cache, work, Head::All)?;
            let Some(draw) = pick.draw() else { return Ok(()) };
            let args = SampleArgs { logits: work.logits(), stride, source: Ptr::NULL, plan, sampling, out };
            sample.run(gpu, draw, bucket.rows, &args)
        })?;
        self.clock.skip(self.forwards.take_spent());
        Ok(ran.then(|| graph_id(bucket)))
    }

    pub(super) fn graphs(&self) -> usize {
        self.forwards.len() + self.commits.len()
    }

    pub(super) fn forget_graphs(&mut self) {
        self.forwards.forget();
        self.commits.forget();
    }

    /// Fills what a pass writes with ones, so that a test sees what a replay leaves as it was.
    #[doc(hidden)]
    pub fn poison(&self) -> CudaResult<()> {
        let width = self.target.logits_width();
        let ones = vec![u8::MAX; self.buckets.most.rows as usize * width * size_of::<f32>()];
        self.gpu.copy_in(self.work.logits(), &ones)?;
        self.gpu.fill(&self.tokens, u8::MAX)
    }

    /// Fills the plan with the trees of `forest`; a sequence that is not verified has its root alone.
    fn fill(&mut self, batch: &Batch, forest: &Forest, law: &Law<'_>) -> CudaResult<Bucket> {
        self.plan.clear();
        for (at, seq) in batch.iter().enumerate() {
            let (kv, tree) = (self.kv(seq.slot), forest.tree(at));
            match self.unusable(forest, at) {
                None => self.plan.add(kv, seq.start, tree.tokens(), Sight::Tree(tree.parents()))?,
                Some(_) => self.plan.add(kv, seq.start, &[seq.root], Sight::Tree(&[0]))?,
            }
            self.state.sampling(at, seq, law.seed());
        }
        let (rows, seqs) = (self.plan.len() as u32, batch.len() as u32);
        let bucket = self.buckets.of(rows, seqs).ok_or_else(|| CudaError::Setting {
            key: "rows",
            problem: format!(
                "of a round are {rows} in {seqs} sequences; the engine was made for {:?}",
                self.buckets.most
            ),
        })?;
        self.plan.push(&self.gpu, bucket)?;
        self.state.push(&self.gpu)?;
        Ok(bucket)
    }

    /// Distinct experts of the last pass; valid once the stream was waited for.
    pub(super) fn pull_experts(&self) -> CudaResult<()> {
        match self.target.moe_layers() {
            0 => Ok(()),
            layers => self.gpu.pull(&self.experts, self.work.experts(), layers),
        }
    }

    /// What [`CudaVerifier::pull_experts`] brought.
    pub(super) fn experts(&self) -> Vec<u32> {
        self.experts.as_slice()[..self.target.moe_layers()].to_vec()
    }
}

impl Verifier for CudaVerifier {
    type Features = CudaFeatures;
    type Verdict = CudaVerdict;

    fn verify(
        &mut self,
        batch: &Batch,
        forest: &Forest,
        drafts: &dyn DraftView,
        law: &Law<'_>,
    ) -> Result<CudaVerdict, Error> {
        let bucket = self.fill(batch, forest, law).map_err(broken)?;
        let pick = Pick::of(law, batch);
        let graph = self.forward(bucket, pick).map_err(broken)?;
        let rows = self.plan.len();
        self.gpu.pull(&self.pulled, self.tokens.ptr(), rows).map_err(broken)?;
        self.pull_experts().map_err(broken)?;
        self.gpu.sync().map_err(broken)?;
        self.check_routing(rows).map_err(broken)?;
        self.clock.mark(Phase::Walk);
        let mut results = Vec::with_capacity(batch.len());
        let mut begin = 0;
        for (at, seq) in batch.iter().enumerate() {
            let fault = self.unusable(forest, at);
            let (tree, first) = (forest.tree(at), begin);
            begin += fault.as_ref().map_or(tree.rows(), |_| 1) as usize;
            if let Some(fault) = fault {
                results.push(Err(fault));
                continue;
            }
            let walk = match pick {
                Pick::Greedy | Pick::Sample | Pick::Filter if !matches!(law, Law::Forced(_)) => {
                    descend(tree, &self.pulled.as_slice()[first..])
                }
                _ => {
                    let rows = DeviceRows::new(&self.gpu, self.work.logits(), first, self.target.logits_width(), tree);
                    judge(law, at as u32, seq, tree, &rows, drafts, &mut self.scratch)
                }
            };
            results.push(walk.map(|walk| settle(seq, tree, &walk)));
        }
        Ok(CudaVerdict { results, graph, experts: self.experts() })
    }

    fn commit(
        &mut self,
        batch: &Batch,
        forest: &Forest,
        verdict: CudaVerdict,
        features: &mut CudaFeatures,
        log: &mut RoundLog,
    ) -> Result<(), Error> {
        self.state.get(Field::PathLen).fill(0);
        let mut longest = 1;
        for (at, result) in verdict.results.iter().enumerate() {
            if let Ok(step) = result
                && step.end.is_none()
            {
                let path: Vec<u32> = std::iter::once(0).chain(step.path.iter().copied()).collect();
                longest = longest.max(path.len());
                self.accept(at, &path);
            }
        }
        self.gather(batch, longest, features).map_err(broken)?;
        self.gpu.sync().map_err(broken)?;
        Self::note(batch, forest, &verdict.results, longest as u32, features);
        log.experts = verdict.experts;
        log.graph = verdict.graph;
        log.results.extend(verdict.results);
        Ok(())
    }
}
