//! The target's pass: per layer attention, two all-reduces, norms and feed-forward part; then the head (formula book §6).

use super::op::{AttentionOp, ExpertOp, Pass, RowOp};
use super::scales::Class;
use super::work::{BF16, Work};
use crate::profile::{Attention, Deployment, Model, Moe};
use treeline_core::log::Phase;

/// How attention is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Formulation {
    /// One table for the whole attention module at one row a request; products of further rows come on top.
    Module,
    /// Kernel and products each from its table.
    Kernels,
}

/// Names of the products that a module table holds already: only what exceeds one row a request is added.
pub(super) const IN_MODULE: [&str; 5] =
    ["attention down projection", "attention up projection", "absorb queries", "absorb values", "output projection"];

/// Operations of one pair of prompt tokens in all layers on one rank: latent attention is not absorbed over a prompt.
pub(super) fn prompt_flops(model: &Model, ranks: u32) -> f64 {
    let layers = f64::from(model.layers);
    layers
        * match model.attention {
            Attention::Mla { heads, nope, rope, v_head, .. } => {
                2.0 * f64::from(part(heads, ranks)) * f64::from(nope + rope + v_head)
            }
            Attention::Gqa { heads, head_dim, .. } => 4.0 * f64::from(part(heads, ranks)) * f64::from(head_dim),
        }
}

/// Size of one rank's part, at least 1.
fn part(n: u32, ranks: u32) -> u32 {
    n.div_ceil(ranks.max(1)).max(1)
}

pub(super) fn target(model: &Model, d: &Deployment, formulation: Formulation) -> Pass {
    let (h, p, l) = (model.hidden, d.ranks, model.layers);
    let row = f64::from(h) * BF16;
    let small = d.overheads.small_kernel_us;
    let mut rows = attention_products(model, d);
    // The module table begins behind the layer's input norm.
    let around = match formulation {
        Formulation::Module => 1,
        Formulation::Kernels => d.overheads.attention_small_kernels,
    };
    // A norm with its residual reads two rows and writes two; the others move less.
    rows.push(RowOp::element("norms, rotation, cache write", around.saturating_mul(l), 4.0 * row, small));
    if d.communicates() {
        rows.push(RowOp::allreduce("all-reduce", 2 * l, row));
    }
    let ffn = d.overheads.ffn_small_kernels.saturating_mul(l);
    rows.push(RowOp::element("norm, expert choice, activation, sum", ffn, 4.0 * row, small));
    let mut shared = Vec::new();
    let mut experts = None;
    if let Some(moe) = &model.moe {
        let calls = model.moe_layers();
        rows.push(RowOp::gemm("router", calls, moe.experts, h, model.bytes_per_param));
        experts = Some(routed(model, moe, p));
        if moe.shared > 0 {
            let width = part(moe.shared.saturating_mul(moe.intermediate), p);
            shared.push(RowOp::gemm("shared expert", calls, 2 * width, h, model.bytes_per_param));
            shared.push(RowOp::gemm("shared expert down", calls, h, width, model.bytes_per_param));
        }
        for op in &mut shared {
            op.class = Class::Moe;
        }
    }
    if model.dense_layers > 0 {
        let width = part(model.dense_intermediate, p);
        rows.push(RowOp::gemm("dense up", model.dense_layers, 2 * width, h, model.bytes_per_param));
        rows.push(RowOp::gemm("dense down", model.dense_layers, h, width, model.bytes_per_param));
    }
    rows.push(RowOp::gemm("head", 1, part(model.vocab, p), h, model.bytes_per_param));
    let logits = f64::from(model.vocab) * BF16;
    if d.communicates() {
        let gather = Work::Gather { bytes: logits };
        rows.push(RowOp { work: gather, ..RowOp::allreduce("gather of logits", 1, 0.0) });
    }
    rows.push(RowOp::element("sampling", 1, 0.0, d.overheads.sample_us));
    // Sampling reads the logits once, and writes and reads a copy of them in f32.
    rows.push(RowOp::element("logits", 1, 5.0 * logits, 0.0));
    Pass { rows, shared, experts, attention: vec![kernel(model, d)] }
}

fn attention_products(model: &Model, d: &Deployment) -> Vec<RowOp> {
    let (h, p, l, w) = (model.hidden, d.ranks, model.layers, model.bytes_per_param);
    match model.attention {
        Attention::Mla { heads, q_lora, kv_lora, nope, rope, v_head } => {
            let heads = part(heads, p);
            let query = heads * (nope + rope);
            let batched = |name, n, k, post| RowOp {
                work: Work::Batched { heads, n, k, post },
                fixed_us: d.overheads.small_kernel_us,
                ..RowOp::gemm(name, l, 0, 0, 0.0)
            };
            // Without a query rank one product makes the queries and the latent.
            let (down, up) = if q_lora == 0 { (query + kv_lora + rope, 0) } else { (q_lora + kv_lora + rope, query) };
            let mut rows = vec![RowOp::gemm(IN_MODULE[0], l, down, h, w)];
            if up > 0 {
                rows.push(RowOp::gemm(IN_MODULE[1], l, up, q_lora, w));
            }
            rows.push(batched(IN_MODULE[2], kv_lora, nope, false));
            rows.push(batched(IN_MODULE[3], v_head, kv_lora, true));
            rows.push(RowOp::gemm(IN_MODULE[4], l, h, heads * v_head, w));
            rows
        }
        Attention::Gqa { heads, kv_heads, head_dim } => {
            let (q, kv) = (part(heads, p), part(kv_heads, p));
            vec![
                RowOp::gemm("qkv projection", l, (q + 2 * kv) * head_dim, h, w),
                RowOp::gemm("output projection", l, h, q * head_dim, w),
            ]
        }
    }
}

/// The decode kernel: the prefix is read once a request; a row costs 2·heads·(scores + values) operations a cached token.
fn kernel(model: &Model, d: &Deployment) -> AttentionOp {
    let p = d.ranks;
    let token_bytes = model.attention.kv_elements_per_rank(p) * d.kv_bytes_per_element;
    let token_flops = match model.attention {
        Attention::Mla { heads, kv_lora, rope, .. } => {
            let (heads, kv, rope) = (f64::from(part(heads, p)), f64::from(kv_lora), f64::from(rope));
            2.0 * heads * (kv + rope + kv)
        }
        Attention::Gqa { heads, head_dim, .. } => 4.0 * f64::from(part(heads, p)) * f64::from(head_dim),
    };
    AttentionOp {
        name: "attention kernel",
        phase: Phase::Verify,
        layers: model.layers,
        token_bytes,
        token_flops,
        window: f64::INFINITY,
    }
}

fn routed(model: &Model, moe: &Moe, p: u32) -> ExpertOp {
    let params = moe.expert_params(model.hidden) / f64::from(p.max(1));
    ExpertOp {
        layers: model.moe_layers(),
        experts: moe.experts,
        top_k: moe.top_k,
        expert_bytes: params * moe.bytes_per_param,
        expert_flops: 2.0 * params,
    }
}
