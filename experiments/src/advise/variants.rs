//! Inputs that a deployment may have otherwise, beside the errors that the cost model states of itself.

use crate::priced::{CostVariant, Prepared, Profiles};
use treeline_sim::cost::StepQuery;
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
