//! `top-k`: the best `width` of every level, then the best of all levels (the form of EAGLE-2); or fixed widths per level
//! (the form of SpecInfer).
//!
//! Dynamic: every level expands its `width` best candidates by cumulative log-probability, each into `width` children; at
//! the end the budget's best candidates of all levels are the tree. Static: every node of level i − 1 has
//! `widths[i − 1]` children, whatever the draft says, cut in level and rank order to the budget.

use crate::layers::{Layered, Pool, Pooled};
use crate::registry::{BuildError, PolicyConfig};
use crate::shape::{MAX_NODES, Shape, Shaped};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use treeline_core::{Ask, DraftView, Forest, Grow, Limits, Needs, NodeRef, Program, Round, TreePolicy};

/// Parameters of `top-k`: either `width` (and `depth`), or `widths`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TopKConfig {
    /// Dynamic form: nodes expanded per level, and children considered of each.
    #[serde(default)]
    pub width: Option<u32>,
    /// Dynamic form: levels; as many as the drafter has unless given.
    #[serde(default)]
    pub depth: Option<u32>,
    /// Static form: children of every node of each level, the root's first; it goes with any law.
    #[serde(default)]
    pub widths: Option<Vec<u32>>,
}

impl PolicyConfig for TopKConfig {
    const KIND: &'static str = "top-k";
    const ABOUT: &'static str =
        "the best `width` per level, then the best of all levels (EAGLE-2), or fixed widths per level";

    fn example() -> Self {
        Self { width: Some(4), depth: None, widths: None }
    }

    fn build(self, limits: &Limits) -> Result<Box<dyn TreePolicy>, BuildError> {
        let bad = |key, why: &str| Err(BuildError::value(Self::KIND, key, why));
        match (self.width, self.depth, self.widths) {
            (None, _, None) => bad("width", "give `width` (best per level) or `widths` (a list, one entry a level)"),
            (Some(_), _, Some(_)) => bad("widths", "`width` and `widths` exclude each other"),
            (None, Some(_), Some(_)) => bad("depth", "with `widths` the list's length is the depth"),
            (Some(0), ..) => bad("width", "must be 1 or more"),
            (_, Some(0), _) => bad("depth", "must be 1 or more"),
            (Some(width), depth, None) => {
                Ok(Layered::boxed(Rule { width, depth: depth.unwrap_or(limits.depth), best: Vec::new() }))
            }
            (None, None, Some(widths)) if widths.is_empty() || widths.contains(&0) => {
                bad("widths", "give one positive width per level")
            }
            (None, None, Some(widths)) => {
                let levels = widths.len().min(limits.depth as usize);
                // What the drafter cannot list is left out here, so that the shape is what the device form gets too.
                let widths: Vec<u32> = widths[..levels].iter().map(|&w| w.min(limits.width)).collect();
                let level = |(nodes, level): (u64, u64), &w: &u32| {
                    let level = level.saturating_mul(u64::from(w));
                    (nodes.saturating_add(level), level)
                };
                let nodes = widths.iter().fold((0, 1), level).0.min(u64::from(limits.budget));
                if nodes > u64::from(MAX_NODES) {
                    return bad("widths", "the shape has more than 65536 nodes: narrow it or lower the budget");
                }
                let shape = Shape::of_widths(&widths, limits.budget);
                Ok(Box::new(StaticWidths { shape, shaped: Shaped::default() }))
            }
        }
    }
}

#[derive(Debug)]
struct Rule {
    width: u32,
    depth: u32,
    best: Vec<u32>,
}

impl Pooled for Rule {
    fn kind(&self) -> &'static str {
        TopKConfig::KIND
    }

    fn needs(&self, limits: &Limits) -> Needs {
        Needs {
            depth: self.depth.min(limits.depth),
            width: self.width.min(limits.width),
            waves: true,
            ..Needs::default()
        }
    }

    fn ask(&self, round: &Round<'_>, ask: &mut Vec<Ask>) {
        let Self { width, depth, .. } = *self;
        ask.extend(round.caps.iter().map(|c| Ask { depth: c.depth.min(depth), width, draw: round.draw }));
    }

    fn width(&self, _pool: &Pool) -> u32 {
        self.width
    }

    fn choose(&mut self, pool: &mut Pool, beam: &mut Vec<u32>) {
        if pool.waves >= self.depth.min(pool.depth) {
            return;
        }
        if self.width < pool.budget {
            beam.extend(pool.fresh());
            pool.best(beam, self.width as usize);
            return;
        }
        // A beam wider than the tree: what is not among the budget's best so far is in no tree, nor is anything below it.
        // Expanding it as well would let the pool grow as width to the power of depth.
        pool.best_of_all(&mut self.best);
        let fresh = pool.fresh();
        beam.extend(self.best.iter().copied().filter(|i| fresh.contains(i)));
    }

    fn select(&mut self, pool: &mut Pool, order: &mut Vec<u32>) {
        pool.best_of_all(order);
    }
}

/// The static form. Accepts drawn candidates, since the shape does not depend on them.
#[derive(Debug)]
pub struct StaticWidths {
    shape: Shape,
    shaped: Shaped,
}

impl TreePolicy for StaticWidths {
    fn kind(&self) -> &str {
        TopKConfig::KIND
    }

    fn needs(&self, limits: &Limits) -> Needs {
        Needs {
            depth: self.shape.depth().min(limits.depth),
            width: self.shape.width(),
            draws: true,
            waves: true,
            ..Needs::default()
        }
    }

    fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<Ask>) {
        self.shaped.begin(round.batch.len());
        let (depth, width) = (self.shape.depth(), self.shape.width());
        ask.extend(round.caps.iter().map(|c| Ask { depth: c.depth.min(depth), width, draw: round.draw }));
    }

    fn grow(
        &mut self,
        _round: &Round<'_>,
        drafts: &dyn DraftView,
        forest: &mut Forest,
        wave: &mut Vec<NodeRef>,
    ) -> Grow {
        self.shaped.grow(|_| &self.shape, drafts, forest, wave)
    }

    fn program(&self) -> Option<Program> {
        Some(Program::Static { parents: self.shape.parents().to_vec(), ranks: self.shape.ranks().to_vec() })
    }
}
