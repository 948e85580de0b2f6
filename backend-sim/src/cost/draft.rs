//! The drafter's pass (formula book §6): a block drafter runs once over `block` rows a request, a conditional one once a step.

use super::op::{AttentionOp, Pass, RowOp};
use super::scales::Class;
use super::work::{BF16, Work};
use crate::profile::{Deployment, Drafter, DrafterKind, Model};
use treeline_core::log::Phase;

/// A drafter, compiled: one pass and how often it runs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DraftPlan {
    /// One pass.
    pub pass: Pass,
    /// Passes of a round where the query names no waves.
    pub passes: u32,
    /// Whether every wave of expansion is a pass of its own.
    pub conditional: bool,
}

pub(super) fn draft(drafter: &Drafter, model: &Model, d: &Deployment) -> DraftPlan {
    let p = d.ranks.max(1);
    let part = |n: u32| n.div_ceil(p).max(1);
    let (h, l, w) = (drafter.hidden, drafter.layers, drafter.bytes_per_param);
    let row = f64::from(h) * BF16;
    let dim = drafter.head_dim;
    let (q, kv) = (part(drafter.heads), part(drafter.kv_heads));
    let width = part(drafter.intermediate);
    let (block, passes) = match drafter.kind {
        DrafterKind::Dflash { block } => (Some(block), 1),
        DrafterKind::Eagle { steps } => (None, steps.max(1)),
    };
    // An EAGLE layer takes the token's embedding beside the feature.
    let into = if block.is_some() { h } else { 2 * h };
    let mut rows = vec![
        // Counted on every row: the committed tokens of a round are at most a block.
        RowOp::gemm("draft features", 1, part(h), drafter.features.saturating_mul(h), w),
        RowOp::gemm("draft qkv", l, (q + 2 * kv) * dim, into, w),
        RowOp::gemm("draft output projection", l, h, q * dim, w),
        RowOp::gemm("draft up", l, 2 * width, h, w),
        RowOp::gemm("draft down", l, h, width, w),
    ];
    if block.is_some() {
        rows.push(RowOp::gemm("draft context keys and values", l, 2 * kv * dim, h, w));
    }
    let small = d.overheads.attention_small_kernels.saturating_add(d.overheads.ffn_small_kernels);
    rows.push(RowOp::element(
        "draft norms and activation",
        small.saturating_mul(l),
        4.0 * row,
        d.overheads.small_kernel_us,
    ));
    if d.communicates() {
        rows.push(RowOp::allreduce("draft all-reduce", 2 * l, row));
    }
    // A block drafter's head sees the masked rows only, and is the target's.
    let share = block.map_or(1.0, |b| f64::from(b - 1) / f64::from(b));
    let (vocab, head_bytes) = if block.is_some() { (model.vocab, model.bytes_per_param) } else { (drafter.vocab, w) };
    rows.push(RowOp { share, ..RowOp::gemm("draft head", 1, part(vocab), h, head_bytes) });
    let logits = f64::from(part(vocab)) * BF16;
    rows.push(RowOp::element("draft ranks", 1, 0.0, d.overheads.sample_us));
    // The best ranks of a row: its logits are read twice, for the sum and for the ranks.
    rows.push(RowOp { share, ..RowOp::element("draft logits", 1, 2.0 * logits, 0.0) });
    if d.communicates() {
        // Each rank sends its best ranks only: 64 pairs of token and score a row and rank.
        let gather = Work::Gather { bytes: f64::from(p) * 64.0 * 8.0 };
        rows.push(RowOp { share, work: gather, ..RowOp::allreduce("draft gather of ranks", 1, 0.0) });
    }
    let rows = rows.into_iter().map(|op| op.of(Phase::Draft, Class::Draft)).collect();
    let kernel = |name, layers, window| AttentionOp {
        name,
        phase: Phase::Draft,
        layers,
        token_bytes: 2.0 * f64::from(kv) * f64::from(dim) * BF16,
        token_flops: 4.0 * f64::from(q) * f64::from(dim),
        window,
    };
    let mut attention = Vec::new();
    if drafter.window_layers > 0 {
        attention.push(kernel("draft attention, window", drafter.window_layers, f64::from(drafter.window)));
    }
    if l > drafter.window_layers {
        attention.push(kernel("draft attention", l - drafter.window_layers, f64::INFINITY));
    }
    let pass = Pass { rows, shared: Vec::new(), experts: None, attention };
    DraftPlan { pass, passes, conditional: block.is_none() }
}
