//! Inputs that a deployment may have otherwise, beside the errors that the cost model states of itself.

use crate::decide::{Part, Variant};
use crate::priced::{At, CostVariant, Prepared, Profiles, Ready, ShapeVariant, ShapeVariants, Simulated, shapes};
use treeline_sim::accept::Process;
use treeline_sim::batch::fast::{Load, Tables};
use treeline_sim::cost::StepQuery;
use treeline_sim::nested::Nested;
use treeline_sim::profile::{Allreduce, Execution};

/// The deployment with other settings: another type of the cache, all-reduces without a switch of algorithm, eager launches.
/// What cannot be priced (no table) is left out.
#[must_use]
pub fn deployment_variants(prepared: &Prepared<'_>) -> Vec<CostVariant> {
    let own = &prepared.profiles;
    let mut out = Vec::new();
    let mut add = |key: &str, input: &str, change: String, profiles: &Profiles| {
        if let Ok(cost) = profiles.cost() {
            out.push(CostVariant { key: key.to_owned(), input: input.to_owned(), change, cost, experts: None });
        }
    };
    let mut other = own.clone();
    let bytes = own.deployment.kv_bytes_per_element;
    other.deployment.kv_bytes_per_element = if bytes > 1.0 { 1.0 } else { 2.0 };
    let name = |bytes: f64| if bytes > 1.0 { "bf16" } else { "FP8" };
    let change = format!("{} in place of {}", name(other.deployment.kv_bytes_per_element), name(bytes));
    add("kv-dtype", "type of the KV cache", change, &other);

    if own.deployment.ranks > 1 && matches!(own.deployment.allreduce, Allreduce::Table { .. }) {
        let lines = prepared.cost.breakdown(&StepQuery::plain(1, 1024));
        let (us, calls) = lines
            .iter()
            .filter(|l| l.name.contains("all-reduce"))
            .fold((0.0, 0u32), |(us, calls), l| (us + l.us, calls + l.calls));
        if calls > 0 {
            let mut other = own.clone();
            let alpha_us = us / f64::from(calls);
            other.deployment.allreduce = Allreduce::Nvls { alpha_us, bytes_s: own.hardware.nvlink_bytes_s };
            let change = format!("no switch: {alpha_us:.0} µs and the link's bandwidth");
            add("allreduce-switch", "algorithm of all-reduces", change, &other);
        }
    }

    if own.deployment.execution == Execution::Graph {
        let mut other = own.clone();
        other.deployment.execution = Execution::Eager;
        other.deployment.graphs = None;
        add("graphs", "CUDA graphs", "eager launches".to_owned(), &other);
    }
    out
}

/// Accepted drafts are moved by this share, each way: what another mixture of requests easily does.
const SCALE: f64 = 0.1;

/// Requests and tokens that a scaled process generates; it is compared with the unscaled one on the same random numbers.
const WALKS: (u32, u32) = (32, 160);

/// A process whose acceptance is scaled, by its mean shapes.
pub(super) struct Scaled(ShapeVariants);

impl Scaled {
    /// `None` for a trace, which is what it is.
    pub fn new(ready: &Ready<'_>) -> Option<Self> {
        let process = ready.acceptance.process.as_ref()?;
        let depth = process.depth();
        let tau = process.tau(depth);
        let base = walk(ready, process)?;
        let moved = [-SCALE, SCALE].into_iter().filter_map(|share| {
            let scaled = process.to_tau(1.0 + (tau - 1.0) * (1.0 + share), depth).ok()?;
            let change = format!("accepted drafts {:+.0} %", share * 100.0);
            let key = "acceptance_scale".to_owned();
            Some(ShapeVariant { key, part: Part::Model, change, shapes: walk(ready, &scaled)? })
        });
        Some(Self(ShapeVariants { moved: moved.collect(), base, ..ShapeVariants::default() }))
    }

    /// Rates of what `ran` under both scales.
    pub fn rates(&self, ready: &Ready<'_>, context: Option<u32>, concurrency: u32, ran: &[Simulated]) -> Vec<Variant> {
        let p = ready.prepared;
        let mut rates = vec![f64::NAN; p.candidates.len()];
        for run in ran {
            let (tokens, ms) = run.rates.iter().fold((0.0, 0.0), |s, r| (s.0 + r.0, s.1 + r.1));
            rates[run.candidate] = tokens / ms;
        }
        let at = At {
            base: &p.cost,
            draft_rows: p.profiles.draft_rows(),
            context: f64::from(context.unwrap_or(ready.acceptance.prompt)),
            concurrency,
        };
        let mut variants = self.0.process_rates(&at, &rates);
        for v in &mut variants {
            v.rates = ran.iter().map(|run| v.rates[run.candidate]).collect();
        }
        variants
    }
}

/// Mean shapes of every candidate on what the process generates.
fn walk(ready: &Ready<'_>, process: &Process) -> Option<Vec<Option<crate::priced::Shape>>> {
    let p = ready.prepared;
    let (seed, experts) = (p.experiment.seed, p.profiles.experts.as_ref().map(|e| &e.0));
    let trace = process.generate(WALKS.0, WALKS.1, seed).ok()?;
    let mut out = vec![None; p.candidates.len()];
    for t in &ready.tables {
        let nested = Nested::build(&trace, t.nested().max_nodes(), t.nested().spine()).ok()?;
        let load = Load { response: None, requests: None, ..p.load(None, 1) };
        for (slot, shape) in out.iter_mut().zip(shapes(&Tables::new(&nested), &p.candidates, experts, &load, seed)) {
            *slot = slot.or(shape);
        }
    }
    Some(out)
}
