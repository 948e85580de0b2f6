//! `sequoia`: the fixed shape that is optimal for a given acceptance by rank (Sequoia's dynamic programme).
//!
//! With p_b the probability that the b-th child of a node is the accepted one, `T[m][l][b]` is the best expected number of
//! tokens of a subtree of m nodes (its root counted), at most l levels below the root and b children of the root:
//!
//! ```text
//! T[1][l][0] = 1
//! T[m][l][b] = max over y of  T[y][l][b − 1] + p_b · max over b' of T[m − y][l − 1][b']
//! ```
//!
//! The size counts the root; a budget of B nodes is m = B + 1. The shape does not depend on the draft, so candidates may
//! also be drawn.
//!
//! Hardware-aware (`size = "cost"`): the size is the end with the highest expected tokens over the ms of a step in which
//! every request verifies such a tree. The expectation is the same in every round, so the ratio is the long-run optimum
//! too. All ends are compared, plain decoding (no draft) among them.

mod table;

pub use table::Table;

use crate::cost_aware::{Goal, Objective, choose, per_request};
use crate::knobs::check_latency;
use crate::registry::{BuildError, PolicyConfig};
use crate::shape::{Shape, Shaped};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use treeline_core::{Ask, DraftView, Forest, Grow, Limits, Needs, NodeRef, Program, Round, StepShape, TreePolicy};

/// Parameters of `sequoia`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SequoiaConfig {
    /// Measured acceptance by rank: entry r is the probability that the child of rank r is the accepted one, given that
    /// its parent was. At least one positive entry, their sum at most 1.
    pub acceptance: Vec<f64>,
    /// `budget`: the run's budget is the size. `cost`: the size up to the run's budget at which tokens per ms of the step
    /// are highest, by the step cost.
    #[serde(default = "default_size")]
    pub size: Size,
    /// With `size = "cost"`: goodput, the most ms that a step may take for its tokens to count; no limit unless given.
    /// Must not be given otherwise.
    #[serde(default)]
    pub latency_ms: Option<f64>,
}

/// What decides the size of the shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Size {
    /// The run's budget.
    Budget,
    /// The step cost.
    Cost,
}

fn default_size() -> Size {
    Size::Budget
}

/// Table entries × inner steps that a build may take: a second or two.
const WORK_LIMIT: u64 = 4_000_000_000;

impl PolicyConfig for SequoiaConfig {
    const KIND: &'static str = "sequoia";
    const ABOUT: &'static str = "the fixed shape that is optimal for a measured acceptance by rank (Sequoia)";

    fn example() -> Self {
        Self { acceptance: vec![0.6, 0.12, 0.06, 0.03, 0.02, 0.01], size: default_size(), latency_ms: None }
    }

    fn build(self, limits: &Limits) -> Result<Box<dyn TreePolicy>, BuildError> {
        check_latency(Self::KIND, self.latency_ms)?;
        if self.size == Size::Budget && self.latency_ms.is_some() {
            return Err(BuildError::value(Self::KIND, "latency_ms", "only `size = \"cost\"` reads it"));
        }
        let bad = |why: String| Err(BuildError::value(Self::KIND, "acceptance", why));
        if let Some(i) = self.acceptance.iter().position(|p| !(0.0..=1.0).contains(p)) {
            return bad(format!("entry {i} is {}, not a probability", self.acceptance[i]));
        }
        if self.acceptance.iter().sum::<f64>() > 1.0 + 1e-9 {
            return bad("the sum exceeds 1, but only one child of a node can be accepted".into());
        }
        let ranks = self.acceptance.iter().take_while(|p| **p > 0.0).count();
        if ranks == 0 {
            return bad("the first entry must be positive".into());
        }
        let p = &self.acceptance[..ranks.min(limits.width as usize)];
        let rows = u64::from(limits.budget) + 1;
        let levels = u64::from(limits.depth.min(limits.budget));
        let work = (rows.saturating_mul(rows) / 2).saturating_mul(levels).saturating_mul(p.len() as u64);
        if work > WORK_LIMIT {
            return bad(format!(
                "{} ranks with a budget of {} are too much for the table: list fewer ranks",
                p.len(),
                limits.budget
            ));
        }
        let table = Table::new(p, limits.budget, limits.depth);
        Ok(Box::new(Sequoia {
            full: Arc::new(table.shape(limits.budget, limits.depth)),
            sizing: (self.size == Size::Cost).then(|| Sizing::new(self.latency_ms)),
            table,
            shapes: BTreeMap::new(),
            seqs: Vec::new(),
            shaped: Shaped::default(),
        }))
    }
}

/// The Sequoia policy. Accepts drawn candidates.
#[derive(Debug)]
pub struct Sequoia {
    table: Table,
    full: Arc<Shape>,
    /// Shapes by (nodes, depth): those of the end of a response or of the context.
    shapes: BTreeMap<(u32, u32), Arc<Shape>>,
    /// Per sequence of this round.
    seqs: Vec<Arc<Shape>>,
    shaped: Shaped,
    /// Where the size follows the cost.
    sizing: Option<Sizing>,
}

/// Working memory of the choice of a size.
#[derive(Debug)]
struct Sizing {
    goal: Goal,
    ends: Vec<u32>,
    rows: Vec<u32>,
    ms: Vec<f64>,
}

impl Sizing {
    fn new(latency_ms: Option<f64>) -> Self {
        let goal = Goal { objective: Objective::Ratio, latency_ms };
        Self { goal, ends: Vec::new(), rows: Vec::new(), ms: Vec::new() }
    }

    /// Nodes per request with the highest rate; `None` without a cost.
    fn nodes(&mut self, round: &Round<'_>, table: &Table) -> Option<u32> {
        let cost = round.cost?;
        let requests = round.batch.len() as u32;
        let context = round.batch.iter().map(|s| u64::from(s.start)).sum::<u64>() / u64::from(requests.max(1));
        per_request(cost.bucket_ends(), requests, round.limits.budget, &mut self.ends);
        self.rows.clear();
        self.rows.extend(self.ends.iter().map(|n| requests.saturating_mul(1 + n)));
        self.ms.clear();
        self.ms.resize(self.ends.len(), 0.0);
        let draft_rows = round.caps.iter().map(|c| c.depth + 1).sum();
        let shape = StepShape { requests, rows: requests, context: context as u32, draft_rows };
        cost.curve(&shape, &self.rows, &mut self.ms);
        let plain = (1.0, cost.step(&StepShape { draft_rows: 0, ..shape }).total());
        // Ends of 0 nodes would pay for a draft that they do not use.
        let sized = self.ends.iter().zip(&self.ms).map(|(&n, &ms)| match n {
            0 => plain,
            n => (table.best(n, round.limits.depth).0, ms),
        });
        let chosen = choose(&self.goal, None, std::iter::once(plain).chain(sized))?;
        Some(chosen.end.checked_sub(1).map_or(0, |end| self.ends[end]))
    }
}

impl TreePolicy for Sequoia {
    fn kind(&self) -> &str {
        SequoiaConfig::KIND
    }

    fn needs(&self, limits: &Limits) -> Needs {
        // Near the end of a response a shallow shape may be wider than the full one.
        let (depth, width) = (limits.depth.min(limits.budget), self.table.branches as u32);
        Needs { depth, width, draws: true, waves: true, cost: self.sizing.is_some(), ..Needs::default() }
    }

    fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<Ask>) {
        self.shaped.begin(round.batch.len());
        self.seqs.clear();
        let size = self.sizing.as_mut().map_or(Some(u32::MAX), |s| s.nodes(round, &self.table));
        for caps in round.caps {
            let nodes = caps.nodes.min(size.unwrap_or(0));
            let shape =
                self.shapes.entry((nodes, caps.depth)).or_insert_with(|| Arc::new(self.table.shape(nodes, caps.depth)));
            ask.push(Ask { depth: shape.depth(), width: shape.width(), draw: round.draw });
            self.seqs.push(Arc::clone(shape));
        }
    }

    fn grow(
        &mut self,
        _round: &Round<'_>,
        drafts: &dyn DraftView,
        forest: &mut Forest,
        wave: &mut Vec<NodeRef>,
    ) -> Grow {
        self.shaped.grow(|seq| &self.seqs[seq], drafts, forest, wave)
    }

    fn program(&self) -> Option<Program> {
        // A size that follows the cost may change with every round.
        self.sizing
            .is_none()
            .then(|| Program::Static { parents: self.full.parents().to_vec(), ranks: self.full.ranks().to_vec() })
    }
}
