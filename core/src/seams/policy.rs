//! What turns drafts into trees.

use super::step::StepCost;
use crate::batch::{Batch, Caps, Limits};
use crate::draft::{Ask, DraftView, Draw, NodeRef};
use crate::forest::Forest;
use crate::log::RoundLog;
use crate::tree::{TreeBuilder, TreeError};
use serde::{Deserialize, Serialize};

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
