//! The policies of an experiment, each with the form in which the grid simulates it, where it has one.

use crate::config::Experiment;
use crate::results::Choice;
use serde_json::{Value, json};
use std::sync::Arc;
use treeline_policies::cost_aware::{BatchWideConfig, CalibrationKind, CostAwareConfig, Goal, Reliability};
use treeline_sim::batch::fast::{self, FastPolicy, Scope};

/// Kind of plain decoding in results.
pub const PLAIN: &str = "plain";

/// The most nodes of nested tables: a node's rank has eleven bits.
pub const TABLE_NODES: u32 = 2047;

/// One policy at one budget.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The policy's kind; [`PLAIN`] for plain decoding.
    pub kind: String,
    /// Its parameters, every value in force.
    pub params: Value,
    /// Nodes without the root.
    pub budget: u32,
    /// What the grid simulates; `None` for policies that only the replay runs, and for budgets beyond [`TABLE_NODES`].
    pub fast: Option<FastPolicy>,
}

impl Candidate {
    /// As answers name it.
    #[must_use]
    pub fn choice(&self) -> Choice {
        Choice { policy: self.kind.clone(), budget: self.budget }
    }

    /// Whether its trees have the same size in every step.
    #[must_use]
    pub fn fixed(&self) -> bool {
        match self.kind.as_str() {
            PLAIN | "chain" | "best-first" | "spine-first" | "top-k" => true,
            "sequoia" => self.params.get("size").and_then(Value::as_str) != Some("cost"),
            _ => false,
        }
    }

    /// The spine that nested tables must have been built with; `None` where any tables do.
    #[must_use]
    pub fn spine(&self) -> Option<u32> {
        match &self.fast {
            Some(FastPolicy::BestFirst { spine, .. }) => Some(*spine),
            Some(FastPolicy::Choose(_)) => Some(0),
            _ => None,
        }
    }
}

/// All candidates of an experiment in file order, plain decoding first. `depth` is the drafter's.
#[must_use]
pub fn candidates(e: &Experiment, depth: u32) -> Vec<Candidate> {
    let plain = Candidate { kind: PLAIN.to_owned(), params: json!({}), budget: 0, fast: Some(FastPolicy::Plain) };
    let policies = e.policies.iter().flat_map(|p| {
        p.budgets.iter().map(|&budget| Candidate {
            kind: p.kind.clone(),
            params: p.params.clone(),
            budget,
            fast: fast(&p.kind, &p.params, budget, depth),
        })
    });
    e.baseline.then_some(plain).into_iter().chain(policies).collect()
}

/// The grid's form of a policy, as far as tables reach.
fn fast(kind: &str, params: &Value, budget: u32, depth: u32) -> Option<FastPolicy> {
    on_tables(kind, params, budget, depth).filter(|f| !looks_up(f) || budget <= TABLE_NODES)
}

/// Whether a policy's trees are looked up in nested tables; plain decoding and chains need none.
fn looks_up(policy: &FastPolicy) -> bool {
    matches!(policy, FastPolicy::BestFirst { .. } | FastPolicy::Choose(_))
}

/// Whether a policy would be on tables if its budget were within [`TABLE_NODES`].
pub(crate) fn beyond_tables(kind: &str, params: &Value, budget: u32, depth: u32) -> bool {
    budget > TABLE_NODES && on_tables(kind, params, budget, depth).is_some_and(|f| looks_up(&f))
}

/// The grid's form of a policy whose trees are prefixes of a best-first order.
fn on_tables(kind: &str, params: &Value, budget: u32, depth: u32) -> Option<FastPolicy> {
    match kind {
        "chain" => Some(FastPolicy::Chain { budget }),
        "best-first" => Some(FastPolicy::BestFirst { budget, spine: 0 }),
        "spine-first" => {
            let spine = params.get("spine").and_then(Value::as_u64).map_or(depth, |s| s.min(u64::from(depth)) as u32);
            Some(FastPolicy::BestFirst { budget, spine })
        }
        "cost-aware" => choose(serde_json::from_value(params.clone()).ok()?, Scope::PerRequest, budget),
        "batch-wide" => {
            let BatchWideConfig(config) = serde_json::from_value(params.clone()).ok()?;
            choose(config, Scope::BatchWide, budget)
        }
        _ => None,
    }
}

/// A chooser that neither learns nor switches itself off: those have a memory that only a whole run has.
fn choose(config: CostAwareConfig, scope: Scope, cap: u32) -> Option<FastPolicy> {
    if config.off {
        return None;
    }
    let reliability = match config.calibration {
        CalibrationKind::Claimed => None,
        CalibrationKind::Given => Some(Arc::new(Reliability::through(config.reliability.as_deref()?).ok()?)),
        CalibrationKind::Learned => return None,
    };
    Some(FastPolicy::Choose(fast::Choice {
        goal: Goal { objective: config.objective, latency_ms: config.latency_ms },
        scope,
        cap,
        reliability,
        throughput: None,
        memory: config.memory,
    }))
}
