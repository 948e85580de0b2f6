//! The traits at which drafters, verifiers, engines, policies and costs meet.

use crate::batch::{Batch, Caps, Limits, Request};
use crate::draft::{Ask, DraftView, Draw, NodeRef};
use crate::error::{Error, Fault};
use crate::forest::Forest;
use crate::law::Law;
use crate::log::{Phase, PhaseTimes, RoundLog};
use crate::tree::{TreeBuilder, TreeError};
use serde::{Deserialize, Serialize};

/// Proposes tokens.
pub trait Drafter {
    /// What the target hands over after each commit (hidden features by slot).
    type Features;
    /// The round's drafts.
    type Drafts: DraftView;

    /// Drafts for every sequence of `batch`; `ask` has one entry a sequence, depth 0 = skip. One sequence's failure is
    /// recorded in the drafts ([`DraftView::fault`]).
    ///
    /// # Errors
    /// Only what ends the whole run.
    fn draft(&mut self, batch: &Batch, features: &Self::Features, ask: &[Ask]) -> Result<Self::Drafts, Error>;

    /// One forward for a wave of nodes over all requests; afterwards their children can be read. Block drafters do
    /// nothing.
    ///
    /// # Errors
    /// Only what ends the whole run.
    fn expand(
        &mut self,
        drafts: &mut Self::Drafts,
        batch: &Batch,
        forest: &Forest,
        wave: &[NodeRef],
    ) -> Result<(), Error>;
}

/// Runs the target over the trees and commits what was accepted.
pub trait Verifier {
    /// As the drafter's.
    type Features;
    /// The outcome of a pass; opaque, since it may stay on a device.
    type Verdict;

    /// One target forward over all rows of `forest`, judged by `law`.
    ///
    /// # Errors
    /// Only what ends the whole run; one sequence's failure is part of the verdict.
    fn verify(
        &mut self,
        batch: &Batch,
        forest: &Forest,
        drafts: &dyn DraftView,
        law: &Law<'_>,
    ) -> Result<Self::Verdict, Error>;

    /// Gathers the KV rows of the accepted paths, writes the features of the next draft, and pushes one result per
    /// sequence, in batch order, to `log.results` (a sequence with [`Forest::fault`] gets that fault), and the distinct
    /// experts to `log.experts`.
    ///
    /// # Errors
    /// Only what ends the whole run.
    fn commit(
        &mut self,
        batch: &Batch,
        forest: &Forest,
        verdict: Self::Verdict,
        features: &mut Self::Features,
        log: &mut RoundLog,
    ) -> Result<(), Error>;
}

/// Where the admission of a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admit {
    /// A chunk of the prompt was processed; call again.
    More,
    /// The prompt is in the cache and the first token is chosen: it is the root at position `start` (= prompt length).
    Done {
        /// The first token of the response.
        root: u32,
        /// Its absolute position.
        start: u32,
    },
}

/// What an engine and its drafter can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineInfo {
    /// Sequences that it can hold at once.
    pub slots: u32,
    /// Positions per sequence, prompt included.
    pub context: u32,
    /// Tokens of the vocabulary.
    pub vocab: u32,
    /// Deepest level that the drafter reaches.
    pub depth: u32,
    /// Most ranks per row.
    pub width: u32,
    /// Whether candidates depend on the path (an autoregressive drafter) or on depth alone (a block drafter).
    pub conditional: bool,
    /// Whether the drafter can give its full distribution and drawn candidates.
    pub draws: bool,
}

/// A drafter and a verifier over one set of slots.
pub trait Engine {
    /// The verifier.
    type V: Verifier;
    /// The drafter.
    type D: Drafter<Features = <Self::V as Verifier>::Features>;

    /// What it can do.
    fn info(&self) -> EngineInfo;

    /// Takes the next chunk of `request`'s prompt into `slot`; the first call for a free slot starts it.
    ///
    /// # Errors
    /// A [`Fault`] of this request; the slot is free again then.
    fn admit(&mut self, slot: u32, request: &Request, law: &Law<'_>) -> Result<Admit, Fault>;

    /// Frees a slot.
    fn release(&mut self, slot: u32);

    /// Drafter, verifier and the features that pass between them.
    fn parts(&mut self) -> (&mut Self::D, &mut Self::V, &mut <Self::V as Verifier>::Features);

    /// Runs a whole round on the device for a policy that publishes a [`Program`]; `false` = not fused, run it staged.
    ///
    /// # Errors
    /// Only what ends the whole run.
    fn fused(
        &mut self,
        _batch: &Batch,
        _program: &Program,
        _law: &Law<'_>,
        _log: &mut RoundLog,
    ) -> Result<bool, Error> {
        Ok(false)
    }

    /// A phase begins; an engine with a clock charges the time since the last mark to the phase before.
    fn mark(&mut self, _phase: Phase) {}

    /// Times since the last call, where there is a clock.
    fn take_times(&mut self) -> Option<PhaseTimes> {
        None
    }
}

/// What a policy needs from whatever runs it. A backend that cannot give it refuses before the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Needs {
    /// Levels that it may ask for.
    pub depth: u32,
    /// Ranks per row that it may ask for.
    pub width: u32,
    /// Whether it accepts drawn candidates, so that residual and traversal laws can verify its trees.
    pub draws: bool,
    /// Whether it reads [`Round::cost`].
    pub cost: bool,
    /// Whether it reads measured time from the log; such a run is reproduced from logged observations.
    pub time: bool,
    /// Whether it expands nodes wave by wave where the drafter is conditional; without, it runs on block drafters only.
    pub waves: bool,
}

/// What a policy sees of a round.
#[derive(Clone, Copy)]
pub struct Round<'a> {
    /// Rounds of the run before this one.
    pub index: u64,
    /// The running sequences.
    pub batch: &'a Batch,
    /// Per sequence, in batch order.
    pub caps: &'a [Caps],
    /// What holds for the run.
    pub limits: &'a Limits,
    /// How candidates must be chosen for the law in force.
    pub draw: Draw,
    /// What a step costs, where the policy's [`Needs::cost`] asked for it.
    pub cost: Option<&'a dyn StepCost>,
}

/// What a policy answers while it grows its trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grow {
    /// The trees are ready.
    Done,
    /// Expand the nodes of the wave, then call again.
    Expand,
}

/// Turns drafts into trees. Sees ranked children, past outcomes, a cost oracle and limits; cannot tell which backend
/// runs it.
pub trait TreePolicy: Send {
    /// The `kind` used in files.
    fn kind(&self) -> &str;

    /// What it needs under these limits.
    fn needs(&self, limits: &Limits) -> Needs;

    /// Decides, before drafting, what to ask: pushes one [`Ask`] per sequence. What exceeds the caps is cut by the round.
    fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<Ask>);

    /// Grows one tree per sequence; with [`Grow::Expand`] the nodes in `wave` are expanded in one forward over all
    /// requests. A sequence that cannot be served is failed with [`Forest::fail`]; sequences with a fault are left alone.
    fn grow(&mut self, round: &Round<'_>, drafts: &dyn DraftView, forest: &mut Forest, wave: &mut Vec<NodeRef>)
    -> Grow;

    /// Sees the outcome of the round.
    fn observe(&mut self, _log: &RoundLog) {}

    /// The device form of this policy, where it has one.
    fn program(&self) -> Option<Program> {
        None
    }
}

/// A policy in a form that a device can run without the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// The all-rank-0 path.
    Chain,
    /// The most probable prefixes, after `spine` forced rank-0 levels.
    BestFirst {
        /// Forced rank-0 levels.
        spine: u32,
        /// How many nodes.
        budget: ProgramBudget,
    },
    /// A fixed shape: parent and rank of each node.
    Static {
        /// Parents, root first.
        parents: Vec<u32>,
        /// Ranks.
        ranks: Vec<u32>,
    },
    /// The best `width` per level, then the best over all levels.
    TopK {
        /// Nodes kept per level.
        width: u32,
        /// Levels.
        depth: u32,
    },
}

/// How a device program sizes its trees.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramBudget {
    /// The same for every slot.
    Fixed(u32),
    /// By slot.
    PerSlot(Vec<u32>),
    /// One heap over the batch: the mean per sequence.
    Shared(u32),
    /// Every prefix whose probability reaches the threshold.
    Threshold(f64),
}

/// Shape of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepShape {
    /// Sequences that decode together.
    pub requests: u32,
    /// Rows verified, roots included.
    pub rows: u32,
    /// Mean context length in tokens.
    pub context: u32,
    /// Rows drafted.
    pub draft_rows: u32,
}

/// Predicted time of one step in ms.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepTime {
    /// Drafter.
    pub draft_ms: f64,
    /// Target.
    pub verify_ms: f64,
    /// Everything else.
    pub other_ms: f64,
}

impl StepTime {
    /// The whole step in ms.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.draft_ms + self.verify_ms + self.other_ms
    }
}

/// What a step costs.
pub trait StepCost: Send + Sync {
    /// Time of one step.
    fn step(&self, shape: &StepShape) -> StepTime;

    /// Total ms of the step for each row count in `rows`, the rest of `shape` unchanged. `ms` has the length of `rows`.
    fn curve(&self, shape: &StepShape, rows: &[u32], ms: &mut [f64]) {
        for (&rows, ms) in rows.iter().zip(ms) {
            *ms = self.step(&StepShape { rows, ..*shape }).total();
        }
    }
}

/// One sequence of a round, as the author of a [`RequestPolicy`] sees it.
#[derive(Clone, Copy)]
pub struct StepView<'a> {
    /// Index of the sequence in the batch.
    pub seq: u32,
    /// The round.
    pub round: Round<'a>,
    /// The drafts.
    pub drafts: &'a dyn DraftView,
}

impl StepView<'_> {
    /// The most nodes that the tree may have.
    #[must_use]
    pub fn budget(&self) -> u32 {
        self.round.caps[self.seq as usize].nodes
    }

    /// The deepest level that the tree may have: the caps' and the draft's.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.round.caps[self.seq as usize].depth.min(self.drafts.depth(self.seq))
    }

    /// Ranked children of a node at `depth` (0 = root).
    #[must_use]
    pub fn children(&self, node: u32, depth: u32) -> &[crate::draft::Candidate] {
        self.drafts.children(NodeRef { seq: self.seq, node, depth })
    }
}

/// A policy that treats each request alone, on a block drafter: what an author writes in 40 lines.
/// `PerRequest` of `treeline-policies` turns it into a [`TreePolicy`].
pub trait RequestPolicy: Send {
    /// The `kind` used in files.
    fn kind(&self) -> &str;

    /// Ranks per row that it reads.
    fn width(&self, limits: &Limits) -> u32;

    /// Draws one tree.
    ///
    /// # Errors
    /// A [`TreeError`] ends this request alone.
    fn plan(&mut self, view: &StepView<'_>, tree: &mut TreeBuilder<'_>) -> Result<(), TreeError>;

    /// Sees the outcome of the round.
    fn observe(&mut self, _log: &RoundLog) {}
}
