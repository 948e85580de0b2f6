//! Op tables: known figures, domains, bad input, and one machine predicted from another.

#![allow(clippy::print_stdout, reason = "the figures go to docs/optables.md")]

mod broken;
mod domain;
mod golden;
mod slices;
mod transfer;

use treeline_sim::optable::{AllReduceTable, ArKey, Collective, Launch, MoeKey, MoeShape, MoeTable, OpTables, Wanted};

/// A key's origin with a version.
fn from<'k>(system: &'k str, engine: &'k str, version: &'k str) -> Wanted<'k> {
    Wanted { system, engine, version: Some(version), kernel: None }
}

/// The Kimi INT4 layer at 8 ranks.
fn kimi(system: &str, engine: &str, version: &str) -> &'static MoeTable {
    let key = MoeKey { from: from(system, engine, version), shape: MoeShape::KIMI_INT4, tp: 8 };
    OpTables::shipped().moe(&key).unwrap()
}

/// An all-reduce inside a graph.
fn allreduce(system: &str, engine: &str, version: &str, ranks: u32) -> &'static AllReduceTable {
    let from = from(system, engine, version);
    let key = ArKey { from, op: Collective::AllReduce, launch: Launch::Graph, ranks };
    OpTables::shipped().allreduce(&key).unwrap()
}

/// A document of the repository.
fn document(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
