//! The device round: draft, trees, verification and commit without the host in between, for policies that publish a program.

use super::draft::{CudaDrafts, Kind};
use super::graphs::Graphs;
use super::pick::Pick;
use super::report::Report;
use super::settings::CudaSettings;
use super::slots::CudaEngine;
use super::state::{Field, NONE};
use super::verifier::{CudaVerifier, broken};
use crate::device::{Event, Gpu, Ptr};
use crate::error::{CudaError, Result};
use crate::ops::plan::{Plan, PlanArgs};
use crate::ops::rows::Bucket;
use crate::ops::tree::{TreeArgs, TreeOp, TreeSizes, asks, slot_budget};
use crate::ops::walk::{Walk, WalkArgs};
use treeline_core::law::settle;
use treeline_core::{
    Batch, Caps, DraftView, Error, Fault, Forest, Law, Phase, Program, ProgramBudget, Round, RoundLog, Step,
};

/// Kernels, graphs and buffers that only a device round uses.
#[derive(Debug)]
pub(super) struct Fused {
    levels: u32,
    slots: u32,
    nodes: u32,
    plan: Plan,
    walk: Walk,
    report: Report,
    /// Programs seen so far; `None` = not for the device.
    programs: Vec<(Program, Option<TreeOp>)>,
    /// By program, sequences, and the pass that the rows are laid out for, where it is known beforehand.
    trees: Graphs<(usize, u32, Option<Bucket>)>,
    commits: Graphs<(u32, bool)>,
    marks: Vec<Event>,
    /// Rounds so far.
    pub rounds: u64,
}

/// Marks of a round: its begin, and the ends of draft, trees, pass, walk and commit.
const MARKS: usize = 6;

/// Phases between the marks.
const BETWEEN: [Phase; MARKS - 1] = [Phase::Draft, Phase::Tree, Phase::Verify, Phase::Walk, Phase::Commit];

impl Fused {
    /// For the engine's largest batch and tree, and `levels` levels of drafts.
    pub fn new(gpu: &Gpu, settings: &CudaSettings, levels: u32) -> Result<Self> {
        Ok(Self {
            levels,
            slots: settings.slots,
            nodes: settings.nodes,
            plan: Plan::new(gpu)?,
            walk: Walk::new(gpu, levels as usize)?,
            report: Report::new(gpu, settings.slots, settings.nodes, levels + 1)?,
            programs: Vec::new(),
            trees: Graphs::new(settings.graphs),
            commits: Graphs::new(settings.graphs),
            rounds: 0,
            marks: (0..MARKS).map(|_| gpu.event()).collect::<Result<_>>()?,
        })
    }

    pub fn graphs(&self) -> usize {
        self.trees.len() + self.commits.len()
    }

    pub fn forget_graphs(&mut self) {
        self.trees.forget();
        self.commits.forget();
    }

    /// Number of a program whose kernels are loaded; `None` = not for the device.
    fn program(&mut self, gpu: &Gpu, program: &Program, width: u32) -> Result<Option<usize>> {
        let at = match self.programs.iter().position(|(known, _)| known == program) {
            Some(at) => at,
            None => {
                let [seqs, levels, width, nodes] =
                    [self.slots, self.levels, width, self.nodes].map(|size| size as usize);
                let op = match TreeOp::new(gpu, program, TreeSizes { seqs, levels, width, nodes }) {
                    Ok(op) => Some(op),
                    Err(CudaError::Setting { .. }) => None,
                    Err(e) => return Err(e),
                };
                self.programs.push((program.clone(), op));
                self.programs.len() - 1
            }
        };
        Ok(self.programs[at].1.is_some().then_some(at))
    }
}

/// The most nodes of the tree of a sequence.
fn most_nodes(program: &Program, slot: u32, caps: Caps) -> u32 {
    let most = match program {
        Program::Chain => caps.depth,
        Program::BestFirst { .. } | Program::TopK { .. } => slot_budget(program, slot as usize).unwrap_or(caps.nodes),
        Program::Static { parents, .. } => parents.len().saturating_sub(1) as u32,
    };
    most.min(caps.nodes)
}

/// Whether only the grown trees tell how many rows they have.
fn counted(program: &Program) -> bool {
    matches!(program, Program::BestFirst { budget: ProgramBudget::Threshold(_), .. })
}

/// Whether caps cut a fixed shape: what is left of it is the policy's to say (it may choose another shape).
fn cut(program: &Program, caps: &[Caps]) -> bool {
    let Program::Static { parents, .. } = program else { return false };
    let nodes = parents.len().saturating_sub(1) as u32;
    let depth = asks(program, u32::MAX, u32::MAX, u32::MAX).0;
    caps.iter().any(|caps| caps.nodes < nodes || caps.depth < depth)
}

/// The most rows of all trees together.
fn most_rows(program: &Program, batch: &Batch, caps: &[Caps]) -> u32 {
    let seqs = batch.len() as u32;
    let each: u32 = batch.iter().zip(caps).map(|(seq, &caps)| most_nodes(program, seq.slot, caps)).sum();
    match program {
        Program::BestFirst { budget: ProgramBudget::Shared(mean), .. } => seqs + each.min(mean.saturating_mul(seqs)),
        _ => seqs + each,
    }
}

impl CudaEngine {
    /// A whole round on the device, or `None` where it has to be staged.
    pub(super) fn fused_round(
        &mut self,
        round: &Round<'_>,
        program: &Program,
        law: &Law<'_>,
        forest: &mut Forest,
        log: &mut RoundLog,
    ) -> std::result::Result<Option<CudaDrafts>, Error> {
        let (Kind::Block(drafter), Some(fused)) = (&self.drafter.kind, &mut self.fused) else { return Ok(None) };
        let drawn = matches!(law, Law::Residual { .. } | Law::Traversal { .. });
        // A round in which nobody drafts has nothing for the device to build; narrower rows would give other trees.
        let idle = round.caps.iter().all(|caps| caps.depth == 0);
        let nodes = round.batch.iter().zip(round.caps).map(|(seq, &caps)| most_nodes(program, seq.slot, caps));
        let large = nodes.max().unwrap_or(0) > fused.nodes;
        if drawn || idle || large || round.limits.width < drafter.width || cut(program, round.caps) {
            return Ok(None);
        }
        let Some(at) = fused.program(&self.verifier.gpu, program, drafter.width).map_err(broken)? else {
            return Ok(None);
        };
        let bound = most_rows(program, round.batch, round.caps);
        if self.verifier.buckets.of(bound, round.batch.len() as u32).is_none() && !counted(program) {
            return Ok(None);
        }
        self.mark_draft();
        let (seqs, graph) = self.queue(round, program, at, law).map_err(broken)?;
        self.verifier.gpu.sync().map_err(broken)?;
        self.split_time().map_err(broken)?;
        self.told(round, program, seqs, forest, log).map(|drafts| {
            log.graph = graph;
            Some(drafts)
        })
    }

    fn mark_draft(&mut self) {
        let spent = self.drafter.take_spent();
        self.verifier.clock.skip(spent);
        self.verifier.clock.mark(Phase::Draft);
    }

    /// Charges each part of the round's device time to its phase.
    fn split_time(&mut self) -> Result<()> {
        let Some(fused) = &mut self.fused else { return Ok(()) };
        fused.rounds += 1;
        let clock = &mut self.verifier.clock;
        for spent in [fused.trees.take_spent(), fused.commits.take_spent()] {
            clock.skip(spent);
        }
        clock.skip(self.drafter.take_spent());
        for (marks, phase) in fused.marks.windows(2).zip(BETWEEN).skip(1) {
            clock.shift(Phase::Draft, phase, marks[0].elapsed_ms(&marks[1])?);
        }
        Ok(())
    }

    /// What kernels must know of the sequences.
    fn describe(verifier: &mut CudaVerifier, round: &Round<'_>, program: &Program, law: &Law<'_>, seqs: u32) {
        for (s, (seq, &caps)) in round.batch.iter().zip(round.caps).enumerate() {
            let kv = verifier.kv(seq.slot);
            let state = &mut verifier.state;
            state.sampling(s, seq, law.seed());
            state.get(Field::Root)[s] = seq.root;
            state.get(Field::Nodes)[s] = most_nodes(program, seq.slot, caps);
            state.get(Field::Levels)[s] = asks(program, caps.nodes, caps.depth, round.limits.width).0;
            state.get(Field::Kv)[s] = kv;
            state.get(Field::Start)[s] = seq.start;
            if let Law::Forced(truth) = law {
                let path = state.path;
                for (depth, word) in (1..).zip(&mut state.get(Field::Truth)[s * path..][..path]) {
                    *word = truth.token(seq.request, seq.start, depth).unwrap_or(NONE);
                }
            }
        }
        for s in round.batch.len()..seqs as usize {
            verifier.state.get(Field::Nodes)[s] = NONE;
            for field in [Field::Root, Field::Levels, Field::Kv, Field::Start] {
                verifier.state.get(field)[s] = 0;
            }
        }
    }

    /// Queues the round; returns the padded number of sequences and the number of the verify graph.
    fn queue(&mut self, round: &Round<'_>, program: &Program, at: usize, law: &Law<'_>) -> Result<(u32, Option<u32>)> {
        let Self { verifier, drafter, features, fused, .. } = self;
        let (Kind::Block(drafter), Some(fused)) = (&mut drafter.kind, fused) else {
            return Err(CudaError::Model("a device round needs a block drafter".into()));
        };
        let Fused { plan, walk, report, programs, trees, commits, marks, .. } = fused;
        let gpu = verifier.gpu.clone();
        let batch = round.batch;
        let padded = verifier.buckets.seqs(batch.len() as u32).unwrap_or(batch.len() as u32);
        Self::describe(verifier, round, program, law, padded);
        verifier.state.push(&gpu)?;
        marks[0].record()?;
        let seqs = drafter.queue(batch, features)?;
        marks[1].record()?;

        // `program` was found to have its kernels.
        let Some(op) = &programs[at].1 else { return Err(CudaError::Model("no such program".into())) };
        let (lattice, built) = (drafter.lattice(seqs), report.trees(seqs));
        let grow = TreeArgs { seqs: verifier.state.trees(), lattice, trees: built };
        let lay = PlanArgs {
            trees: built,
            stride: report.stride as u32,
            kv: verifier.state.at(Field::Kv),
            start: verifier.state.at(Field::Start),
            plan: verifier.plan.ptrs(),
            sink: verifier.sink,
            overflow: report.overflow(seqs),
        };
        let too_many = |rows: u32| CudaError::Setting {
            key: "rows",
            problem: format!("of a round are {rows}; the engine was made for {:?}", verifier.buckets.most),
        };
        let bucket_of = |rows: u32| verifier.buckets.of(rows, batch.len() as u32).ok_or_else(|| too_many(rows));
        let bucket = if counted(program) {
            // Only the trees tell how many rows there are.
            trees.run(&gpu, (at, seqs, None), || op.run(&gpu, seqs, &grow))?;
            report.pull(&gpu, seqs)?;
            gpu.sync()?;
            let bucket = bucket_of(report.read(seqs).rows(batch.len()).iter().sum())?;
            plan.run(&gpu, bucket, &lay)?;
            bucket
        } else {
            let bucket = bucket_of(most_rows(program, batch, round.caps))?;
            trees.run(&gpu, (at, seqs, Some(bucket)), || {
                op.run(&gpu, seqs, &grow)?;
                plan.run(&gpu, bucket, &lay)
            })?;
            bucket
        };
        marks[2].record()?;

        let pick = Pick::of(law, batch);
        let graph = verifier.forward(bucket, pick)?;
        marks[3].record()?;

        let forced = matches!(law, Law::Forced(_));
        let out = report.walk(seqs);
        let args = WalkArgs {
            plan: verifier.plan.ptrs(),
            token: built.token,
            parent: built.parent,
            stride: report.stride as u32,
            judged: if forced { Ptr::NULL } else { verifier.tokens.ptr() },
            truth: if forced { verifier.state.at(Field::Truth) } else { Ptr::NULL },
            draft_fault: built.fault,
            out,
        };
        commits.run_once(&gpu, (seqs, forced), || {
            walk.run(&gpu, seqs, &args)?;
            marks[4].record()?;
            verifier.gather_all(seqs, out.path, out.len, features)
        })?;
        marks[5].record()?;
        drafter.pull(seqs)?;
        report.pull(&gpu, seqs)?;
        verifier.pull_experts()?;
        Ok((seqs, graph))
    }

    /// What the device told: trees, results, and the drafts that both came from.
    fn told(
        &mut self,
        round: &Round<'_>,
        program: &Program,
        seqs: u32,
        forest: &mut Forest,
        log: &mut RoundLog,
    ) -> std::result::Result<CudaDrafts, Error> {
        let (Kind::Block(drafter), Some(fused)) = (&self.drafter.kind, &self.fused) else {
            return Err(Error::Engine("a device round needs a block drafter".into()));
        };
        let told = fused.report.read(seqs);
        if told.overflowed() {
            return Err(Error::Engine("the trees of a device round have more rows than their caps allow".into()));
        }
        let batch = round.batch;
        let rows: u32 = told.rows(batch.len()).iter().sum();
        self.verifier.check_routing(rows as usize).map_err(broken)?;
        let asked = |s: usize| asks(program, round.caps[s].nodes, round.caps[s].depth, round.limits.width).0;
        let cut = |s: usize| (asked(s), round.limits.width);
        let lattice = drafter.read(seqs, batch.len(), cut).map_err(broken)?;
        let mut results = Vec::with_capacity(batch.len());
        for (s, seq) in batch.iter().enumerate() {
            let broken = |e| Error::Engine(format!("the device built a tree that is none: {e}"));
            told.tree(s, forest.tree_mut(s)).map_err(broken)?;
            let result: std::result::Result<Step, Fault> = match told.walk(s) {
                Ok(Some(walk)) => Ok(settle(seq, forest.tree(s), &walk)),
                Ok(None) => {
                    let fault = lattice.fault(s as u32);
                    let fault = fault.unwrap_or(Fault::Draft { depth: 1, why: "the device found it so".into() });
                    forest.fail(s, fault.clone());
                    Err(fault)
                }
                Err(fault) => Err(fault),
            };
            results.push(result);
        }
        CudaVerifier::note(batch, forest, &results, 0, &self.features);
        log.experts = self.verifier.experts();
        log.results = results;
        Ok(CudaDrafts::Ranked(lattice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_a_round_are_bounded_by_caps_and_program() {
        let caps = |nodes, depth| Caps { nodes, depth };
        let best = |budget| Program::BestFirst { spine: 0, budget };
        assert_eq!(most_nodes(&Program::Chain, 0, caps(64, 7)), 7);
        assert_eq!(most_nodes(&best(ProgramBudget::Fixed(16)), 0, caps(64, 7)), 16);
        assert_eq!(most_nodes(&best(ProgramBudget::Fixed(16)), 0, caps(9, 7)), 9);
        assert_eq!(most_nodes(&best(ProgramBudget::PerSlot(vec![3, 5])), 1, caps(64, 7)), 5);
        assert_eq!(most_nodes(&best(ProgramBudget::Shared(4)), 0, caps(64, 7)), 64);
        let shape = Program::Static { parents: vec![0, 0, 0, 1], ranks: vec![0, 0, 1, 0] };
        assert_eq!(most_nodes(&shape, 0, caps(64, 7)), 3);
        assert!(!cut(&shape, &[caps(3, 2), caps(64, 7)]) && cut(&shape, &[caps(64, 1)]) && cut(&shape, &[caps(2, 2)]));
        assert!(!cut(&Program::Chain, &[caps(1, 1)]));
    }
}
