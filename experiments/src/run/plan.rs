//! The cells of an experiment, each with the key that names its result.

use super::source::{Capped, Facts, Source};
use crate::config::{Experiment, PolicySpec, Record};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use treeline_core::{
    Batch, DraftView, Engine as _, Forest, Grow, Limits, Needs, NodeRef, Round, TreePolicy, check_fit,
};
use treeline_policies::Registry;

/// Kind of plain decoding in results.
pub(super) const PLAIN: &str = "plain";

/// One cell.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CellSpec {
    /// Names the cell's files: readable, with a digest of everything that determines its result.
    pub key: String,
    /// For people.
    pub label: String,
    /// The policy's kind.
    pub kind: String,
    /// Its parameters.
    pub params: Value,
    /// Nodes without the root.
    pub budget: u32,
    /// Temperature of the target.
    pub temperature: f64,
    /// Requests at once.
    pub concurrency: u32,
}

impl CellSpec {
    /// The limits that its policy is built for.
    pub fn limits(&self, width: u32, depth: u32) -> Limits {
        Limits { budget: self.budget, depth, width, concurrency: self.concurrency }
    }

    /// The cell's policy.
    pub fn policy(&self, registry: &Registry, limits: &Limits) -> anyhow::Result<Box<dyn TreePolicy>> {
        if self.kind == PLAIN {
            return Ok(Box::new(Plain));
        }
        Ok(registry.build(&self.kind, &self.params, limits)?)
    }
}

/// All cells: by temperature and concurrency, plain decoding first. Every policy is built once and checked against law,
/// drafter and cost, so that a run which cannot finish does not begin.
pub(super) fn plan<S: Source>(source: &S, e: &Experiment, registry: &Registry) -> anyhow::Result<Vec<CellSpec>> {
    let facts = source.facts();
    let mut cells = Vec::new();
    for &temperature in &facts.temperatures {
        for &concurrency in &e.concurrency {
            let cell =
                |kind: &str, params: &Value, budget| spec(source, e, kind, params, budget, temperature, concurrency);
            if e.baseline {
                cells.push(cell(PLAIN, &json!({}), 0));
            }
            for PolicySpec { kind, budgets, params } in &e.policies {
                cells.extend(budgets.iter().map(|&budget| cell(kind, params, budget)));
            }
        }
    }
    let info = Capped { inner: source.engine(1, 0)?, width: facts.width, depth: facts.depth }.info();
    for cell in &cells {
        let limits = cell.limits(info.width, info.depth);
        let needs = cell.policy(registry, &limits)?.needs(&limits);
        let law = source.law(cell.temperature);
        check_fit(&cell.kind, &needs, &law, &info, e.cost.is_some() || source.cost().is_some())
            .map_err(anyhow::Error::from)
            .and_then(|()| source.check(&cell.kind, &needs))?;
    }
    let twice = cells.iter().enumerate().find(|(i, c)| cells[..*i].iter().any(|d| d.key == c.key));
    if let Some((_, cell)) = twice {
        anyhow::bail!("cell {} is listed twice: the same policy, parameters and budget", cell.label);
    }
    Ok(cells)
}

fn spec<S: Source>(
    source: &S,
    e: &Experiment,
    kind: &str,
    params: &Value,
    budget: u32,
    temperature: f64,
    concurrency: u32,
) -> CellSpec {
    let record = match e.record {
        Record::Summary => 0,
        Record::Sample(n) => n,
        Record::All => 1,
    };
    let cost = e.cost.as_ref().map(|c| json!({ "rows": c.curve.rows(), "ms": c.curve.ms() }));
    let determines = json!({
        "source": source.facts().identity,
        "policy": kind,
        "params": params,
        "budget": budget,
        "temperature": temperature,
        "concurrency": concurrency,
        "bootstrap": e.bootstrap,
        "record": record,
        "cost": cost,
    });
    let digest = sha256(determines.to_string().as_bytes());
    CellSpec {
        key: format!("{kind}-b{budget}-t{temperature}-c{concurrency}-{}", &digest[..12]),
        label: label(kind, budget, temperature, concurrency, None),
        kind: kind.to_owned(),
        params: params.clone(),
        budget,
        temperature,
        concurrency,
    }
}

/// A cell for people; `source` where there are several of them.
pub(super) fn label(kind: &str, budget: u32, temperature: f64, concurrency: u32, source: Option<&Facts>) -> String {
    let from = source.map_or_else(String::new, |f| format!(", {}, context {}", f.acceptance, f.context));
    format!("{kind} budget {budget}, T {temperature}, concurrency {concurrency}{from}")
}

/// SHA-256 in lower-case hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// Plain decoding: no draft, no tree.
struct Plain;

impl TreePolicy for Plain {
    fn kind(&self) -> &str {
        PLAIN
    }

    fn needs(&self, _limits: &Limits) -> Needs {
        // It verifies no candidate, so no law minds how they were chosen, and no drafter how they are asked for.
        Needs { draws: true, waves: true, ..Needs::default() }
    }

    fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<treeline_core::Ask>) {
        let Batch { seqs } = round.batch;
        ask.extend(seqs.iter().map(|_| treeline_core::Ask { draw: round.draw, ..Default::default() }));
    }

    fn grow(&mut self, _: &Round<'_>, _: &dyn DraftView, _: &mut Forest, _: &mut Vec<NodeRef>) -> Grow {
        Grow::Done
    }
}
