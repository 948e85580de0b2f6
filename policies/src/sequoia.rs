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

use crate::registry::{BuildError, PolicyConfig};
use crate::shape::{Shape, Shaped};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use treeline_core::{Ask, DraftView, Forest, Grow, Limits, Needs, NodeRef, Program, Round, TreePolicy};

/// Parameters of `sequoia`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SequoiaConfig {
    /// Measured acceptance by rank: entry r is the probability that the child of rank r is the accepted one, given that
    /// its parent was. At least one positive entry, their sum at most 1.
    pub acceptance: Vec<f64>,
}

/// Table entries × inner steps that a build may take: a second or two.
const WORK_LIMIT: u64 = 4_000_000_000;

impl PolicyConfig for SequoiaConfig {
    const KIND: &'static str = "sequoia";
    const ABOUT: &'static str = "the fixed shape that is optimal for a measured acceptance by rank (Sequoia)";

    fn example() -> Self {
        Self { acceptance: vec![0.6, 0.12, 0.06, 0.03, 0.02, 0.01] }
    }

    fn build(self, limits: &Limits) -> Result<Box<dyn TreePolicy>, BuildError> {
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
            table,
            shapes: BTreeMap::new(),
            seqs: Vec::new(),
            shaped: Shaped::default(),
        }))
    }
}

/// The filled table of the dynamic programme.
#[derive(Debug)]
pub struct Table {
    /// Most rows and levels.
    rows: usize,
    levels: usize,
    branches: usize,
    /// `T[m][l][b]`; −∞ where exactly m nodes do not fit. Index ((l · rows) + m − 1) · (branches + 1) + b.
    value: Vec<f64>,
    /// The maximising y of the same entry.
    split: Vec<u32>,
    /// max over b of `T[m][l][b]` and its b, by l · rows + m − 1.
    best: Vec<(f64, u32)>,
}

impl Table {
    /// The table for trees of up to `budget` nodes (root not counted) and `depth` levels. `p` is acceptance by rank.
    #[must_use]
    pub fn new(p: &[f64], budget: u32, depth: u32) -> Self {
        // Without levels there is the root alone.
        let (rows, branches) = (if depth == 0 { 1 } else { budget as usize + 1 }, p.len());
        let levels = depth.min(budget) as usize + 1;
        let entries = rows * levels * (branches + 1);
        let mut t = Self {
            rows,
            levels,
            branches,
            value: vec![f64::NEG_INFINITY; entries],
            split: vec![0; entries],
            best: vec![(f64::NEG_INFINITY, 0); rows * levels],
        };
        for l in 0..levels {
            let leaf = t.at(1, l, 0);
            t.value[leaf] = 1.0;
            t.best[l * rows] = (1.0, 0);
            if l == 0 {
                continue;
            }
            for (b, &p) in (1..).zip(p) {
                for m in 2..=rows {
                    let mut best = (f64::NEG_INFINITY, 0);
                    for y in 1..m {
                        let value = t.value[t.at(y, l, b - 1)] + p * t.best[(l - 1) * rows + m - y - 1].0;
                        if value > best.0 {
                            best = (value, y as u32);
                        }
                    }
                    let entry = t.at(m, l, b);
                    (t.value[entry], t.split[entry]) = best;
                    let top = &mut t.best[l * rows + m - 1];
                    if best.0 > top.0 {
                        *top = (best.0, b as u32);
                    }
                }
            }
        }
        t
    }

    fn at(&self, m: usize, l: usize, b: usize) -> usize {
        ((l * self.rows) + m - 1) * (self.branches + 1) + b
    }

    /// Expected tokens per step, bonus included, of the best tree of at most `budget` nodes and `depth` levels; and its
    /// size with the root.
    #[must_use]
    pub fn best(&self, budget: u32, depth: u32) -> (f64, u32) {
        let l = (depth as usize).min(self.levels - 1);
        let sizes = 1..=(budget as usize + 1).min(self.rows);
        let mut best = (f64::NEG_INFINITY, 1);
        for m in sizes {
            let value = self.best[l * self.rows + m - 1].0;
            if value > best.0 {
                best = (value, m as u32);
            }
        }
        best
    }

    /// The best tree, level by level.
    #[must_use]
    pub fn shape(&self, budget: u32, depth: u32) -> Shape {
        let mut shape = Shape::default();
        let l = (depth as usize).min(self.levels - 1);
        // Breadth first: nodes whose children are still to be added, with the size of their subtree and its levels.
        let mut queue = std::collections::VecDeque::from([(0, self.best(budget, depth).1 as usize, l)]);
        while let Some((node, mut m, l)) = queue.pop_front() {
            let branches = self.best[l * self.rows + m - 1].1 as usize;
            let first = shape.rows();
            (0..branches as u32).for_each(|rank| {
                shape.push(node, rank);
            });
            let begin = queue.len();
            for b in (1..=branches).rev() {
                let y = self.split[self.at(m, l, b)] as usize;
                queue.insert(begin, (first + b as u32 - 1, m - y, l - 1));
                m = y;
            }
        }
        shape
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
}

impl TreePolicy for Sequoia {
    fn kind(&self) -> &str {
        SequoiaConfig::KIND
    }

    fn needs(&self, limits: &Limits) -> Needs {
        // Near the end of a response a shallow shape may be wider than the full one.
        let (depth, width) = (limits.depth.min(limits.budget), self.table.branches as u32);
        Needs { depth, width, draws: true, waves: true, ..Needs::default() }
    }

    fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<Ask>) {
        self.shaped.begin(round.batch.len());
        self.seqs.clear();
        for caps in round.caps {
            let shape = self
                .shapes
                .entry((caps.nodes, caps.depth))
                .or_insert_with(|| Arc::new(self.table.shape(caps.nodes, caps.depth)));
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
        Some(Program::Static { parents: self.full.parents().to_vec(), ranks: self.full.ranks().to_vec() })
    }
}
