//! A whole step of one rank of Kimi K2 (tensor parallel over 8) with synthetic weights, without communication.
//!
//! `cargo bench -p treeline-cuda --bench step`. Needs a GPU with 80 GB free; `-- --tiny` runs a small model of the same form on
//! the emulator, to try the bench itself. One sequence with 8k of context and a draft tree, routing forced to independent
//! experts, the step in one graph. Printed: median of the replays, the bytes that must be read over the memory's bandwidth
//! (the floor), and the time of each part alone (a graph of that part over all layers).

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use std::path::Path;
use std::time::Instant;
use treeline_checkpoint::{Attention, Ffn, TargetConfig};
use treeline_cuda::device::{Gpu, Graph};
use treeline_cuda::model::{Cache, Head, Part, Shard, Synthetic, Target, Work};
use treeline_cuda::ops::rows::{Bucket, RowPlan, Sight};
use treeline_cuda::testing::Numbers;
use treeline_cuda::{CudaError, Result};

/// Read bandwidth of one H200 as measured on its own, bytes a second.
const BANDWIDTH: f64 = 4.1e12;

/// What changes between the real shapes and the small ones.
struct Shapes {
    layers: usize,
    ranks: usize,
    context: usize,
    rows: &'static [u32],
    chunk: usize,
    replays: usize,
}

const REAL: Shapes = Shapes { layers: 61, ranks: 8, context: 8192, rows: &[1, 8, 17, 33, 65], chunk: 256, replays: 20 };
const TINY: Shapes = Shapes { layers: 3, ranks: 2, context: 40, rows: &[1, 5], chunk: 16, replays: 2 };

fn config(tiny: bool) -> Result<TargetConfig> {
    let sizes = if tiny {
        r#""vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 64,
        "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8, "n_routed_experts": 16,
        "num_experts_per_tok": 4, "kv_lora_rank": 32, "q_lora_rank": 32, "qk_rope_head_dim": 16, "v_head_dim": 16,
        "qk_nope_head_dim": 16"#
    } else {
        r#""vocab_size": 163840, "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
        "num_hidden_layers": 61, "num_attention_heads": 64, "num_key_value_heads": 64, "n_routed_experts": 384,
        "num_experts_per_tok": 8, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "qk_nope_head_dim": 128"#
    };
    let text = format!(
        r#"{{"architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2", {sizes}, "n_shared_experts": 1,
        "routed_scaling_factor": 2.827, "n_group": 1, "topk_group": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid",
        "moe_layer_freq": 1, "first_k_dense_replace": 1, "norm_topk_prob": true, "hidden_act": "silu",
        "max_position_embeddings": 262144, "rms_norm_eps": 1e-05, "tie_word_embeddings": false, "rope_theta": 50000.0,
        "rope_scaling": {{"type": "yarn", "factor": 64.0, "original_max_position_embeddings": 4096, "beta_fast": 32.0,
        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}}, "attention_bias": false, "quantization_config": {{
        "quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {{"group_0": {{
        "targets": ["Linear"], "weights": {{"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group",
        "group_size": 32}}}}}}, "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
        "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]}}}}"#
    );
    Ok(TargetConfig::from_json(&text, Path::new("config.json"))?)
}

/// Bytes of weights that a step of one rank reads whatever its rows, by part.
fn fixed(config: &TargetConfig, ranks: usize) -> Vec<(Part, f64)> {
    let Attention::Mla(a) = &config.attention else { return Vec::new() };
    let (h, n, layers) = (config.hidden, a.heads / ranks, config.layers.len());
    let (mut gate_up, mut down, mut score, mut shared) = (0, 0, 0, 0);
    for layer in &config.layers {
        let inner = match &layer.ffn {
            Ffn::Dense { intermediate } => intermediate / ranks,
            Ffn::Moe(m) => {
                score += m.experts * h;
                // Gate and up of the shared experts run with the router where the rows are few.
                shared += 2 * m.shared * m.intermediate / ranks * h;
                m.shared * m.intermediate / ranks
            }
        };
        (gate_up, down) = (gate_up + 2 * inner * h, down + inner * h);
    }
    let q = a.q_lora.unwrap_or(0);
    let parts = [
        (Part::Down, layers * (q + a.kv_lora + a.rope) * h),
        (Part::QueryUp, layers * n * (a.nope + a.rope) * q),
        (Part::Absorb, layers * n * a.nope * a.kv_lora),
        (Part::Expand, layers * n * a.v * a.kv_lora),
        (Part::Out, layers * n * a.v * h),
        (Part::GateUp, gate_up - shared),
        (Part::MlpDown, down),
        (Part::Score, score + shared),
        (Part::Head, config.vocab / ranks * h),
    ];
    parts.iter().map(|(part, elements)| (*part, *elements as f64 * 2.0)).collect()
}

struct Bench {
    gpu: Gpu,
    target: Target,
    cache: Cache,
    work: Work,
    plan: RowPlan,
    shapes: Shapes,
    noise: Numbers,
}

fn main() -> Result<()> {
    let tiny = std::env::args().any(|a| a == "--tiny");
    let (gpu, shapes) = match if tiny { Gpu::emulated() } else { Gpu::open(0) } {
        Ok(gpu) => (gpu, if tiny { TINY } else { REAL }),
        Err(e) => {
            println!("skipped: {e}");
            return Ok(());
        }
    };
    println!("synthetic weights, one rank of {}, {} layers; {:?}", shapes.ranks, shapes.layers, gpu.info());
    let mut bench = Bench::new(gpu, shapes, &config(tiny)?)?;
    bench.prefill()?;
    for &rows in bench.shapes.rows {
        bench.step(rows)?;
    }
    Ok(())
}

impl Bench {
    fn new(gpu: Gpu, shapes: Shapes, config: &TargetConfig) -> Result<Self> {
        let begin = Instant::now();
        let shard = Shard { rank: 0, ranks: shapes.ranks };
        let (config, layers, positions) = (config.clone(), shapes.layers, shapes.context + 300);
        let target = Target::synthetic(&gpu, &Synthetic { config, layers, shard, positions, seed: 1 })?;
        println!("weights: {:.2} GB in {:.1} s", target.weight_bytes() as f64 / 1e9, begin.elapsed().as_secs_f64());
        let rows = shapes.context + 300;
        let cache = target.cache(&gpu, rows + 1)?;
        let max = Bucket { rows: shapes.chunk.max(80) as u32, seqs: 1 };
        let mut work = target.work(&gpu, max, &[])?;
        work.force(&gpu)?;
        let plan = RowPlan::new(&gpu, max.rows as usize, 1, rows as u32)?;
        Ok(Self { gpu, target, cache, work, plan, shapes, noise: Numbers(5) })
    }

    /// Independent experts for each row and layer; returns the distinct ones of each layer.
    fn route(&mut self, rows: usize) -> Result<Vec<u32>> {
        let Some(forced) = self.work.forced() else { return Ok(Vec::new()) };
        let (layers, k) = (self.target.moe_layers(), self.target.top_k());
        let experts = match self.target.config().layers.last().map(|l| &l.ffn) {
            Some(Ffn::Moe(m)) => m.experts,
            _ => return Err(CudaError::Model("the last layer has no experts".into())),
        };
        let mut distinct = Vec::new();
        let mut ids = vec![-1i32; forced.len()];
        for layer in ids.chunks_exact_mut(forced.len() / layers) {
            let mut seen = vec![false; experts];
            for row in layer.chunks_exact_mut(k).take(rows) {
                for i in 0..k {
                    let mut id = self.noise.below(experts as u64) as i32;
                    while row[..i].contains(&id) {
                        id = self.noise.below(experts as u64) as i32;
                    }
                    row[i] = id;
                    seen[id as usize] = true;
                }
            }
            distinct.push(seen.iter().filter(|s| **s).count() as u32);
        }
        self.gpu.copy_in(forced.ptr(), &ids)?;
        Ok(distinct)
    }

    /// Fills the context in prompt chunks.
    fn prefill(&mut self) -> Result<()> {
        let begin = Instant::now();
        let mut start = 0;
        while start < self.shapes.context {
            let count = self.shapes.chunk.min(self.shapes.context - start);
            let tokens: Vec<u32> = (0..count).map(|_| self.noise.below(60) as u32).collect();
            self.plan.clear();
            self.plan.add(0, start as u32, &tokens, Sight::Causal)?;
            let bucket = Bucket { rows: count as u32, seqs: 1 };
            self.plan.push(&self.gpu, bucket)?;
            self.route(count)?;
            let (at, head) = (self.plan.ptrs(), Head::None);
            self.target.forward(&self.gpu, bucket, at, &self.cache, &self.work, head)?;
            self.gpu.sync()?;
            start += count;
        }
        let (seconds, context) = (begin.elapsed().as_secs_f64(), self.shapes.context);
        println!("prompt: {context} tokens in chunks of {} in {seconds:.2} s (first uses included)", self.shapes.chunk);
        Ok(())
    }

    /// A graph of the parts that `want` names.
    fn graph(&self, bucket: Bucket, want: Option<Part>) -> Result<Graph> {
        let queue = || {
            let mut probe = |part: Part, _: usize| Ok(want.is_none_or(|w| w == part));
            let (at, head) = (self.plan.ptrs(), Head::All);
            self.target.forward_probed(&self.gpu, bucket, at, &self.cache, &self.work, head, &mut probe)
        };
        queue()?;
        self.gpu.sync()?;
        self.gpu.capture(queue)
    }

    /// Median microseconds of a graph.
    fn time(&self, graph: &Graph) -> Result<f64> {
        let (a, b) = (self.gpu.event()?, self.gpu.event()?);
        let mut times = Vec::new();
        for i in 0..self.shapes.replays + 3 {
            a.record()?;
            graph.launch()?;
            b.record()?;
            let ms = a.elapsed_ms(&b)?;
            if i >= 3 {
                times.push(f64::from(ms) * 1e3);
            }
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }

    fn step(&mut self, rows: u32) -> Result<()> {
        let tokens: Vec<u32> = (0..rows).map(|_| self.noise.below(60) as u32).collect();
        let parents: Vec<u32> =
            (0..rows).map(|i| if i == 0 { 0 } else { i - 1 - self.noise.below(u64::from(i.min(8))) as u32 }).collect();
        self.plan.clear();
        self.plan.add(0, self.shapes.context as u32, &tokens, Sight::Tree(&parents))?;
        let bucket = Bucket { rows, seqs: 1 };
        self.plan.push(&self.gpu, bucket)?;
        let distinct = self.route(rows as usize)?;
        let graph = self.graph(bucket, None)?;
        let us = self.time(&graph)?;
        let measured: Vec<u32> = self.gpu.read(self.work.experts(), self.target.moe_layers())?;
        if measured != distinct {
            return Err(CudaError::Model(format!("distinct experts {measured:?}, but {distinct:?} were forced")));
        }
        let logits: Vec<f32> = self.gpu.read(self.work.logits(), self.target.logits_width() * rows as usize)?;
        let size = (logits.iter().map(|x| x * x).sum::<f32>() / logits.len() as f32).sqrt();
        self.report(rows, us, graph.nodes(), &distinct, size)
    }

    fn report(&self, rows: u32, us: f64, nodes: usize, distinct: &[u32], size: f32) -> Result<()> {
        let config = self.target.config();
        let touched: f64 = distinct.iter().map(|u| f64::from(*u)).sum();
        let Some(Ffn::Moe(moe)) = config.layers.last().map(|l| &l.ffn) else { return Ok(()) };
        let expert = (3 * config.hidden * moe.intermediate / self.shapes.ranks) as f64 * 0.5625;
        let mut bytes = fixed(config, self.shapes.ranks);
        bytes.push((Part::Experts, touched * expert));
        let keys = (self.shapes.context + rows as usize) * self.cache.row_bytes() * config.layers.len();
        bytes.push((Part::Attend, keys as f64));
        let all: f64 = bytes.iter().map(|(_, b)| b).sum();
        let floor = all / BANDWIDTH * 1e6;
        let u = touched / distinct.len() as f64;
        println!(
            "\nrows {rows}: {us:.0} us, floor {floor:.0} us ({:.2} GB): {:.2}x; U {u:.1}, {nodes} nodes, rms logit {size:.3}",
            all / 1e9,
            us / floor
        );
        let mut sum = 0.0;
        let bucket = Bucket { rows, seqs: 1 };
        println!("{:<16}{:>9}{:>9}{:>9}{:>8}{:>9}", "part", "us", "us/layer", "floor", "share", "GB/s");
        for part in Part::ALL {
            let graph = self.graph(bucket, Some(part))?;
            if graph.nodes() == 0 {
                continue;
            }
            let own = self.time(&graph)?;
            sum += own;
            let bytes = bytes.iter().find(|(p, _)| *p == part).map_or(0.0, |(_, b)| *b);
            println!(
                "{:<16}{own:>9.0}{:>9.2}{:>9.0}{:>7.1}%{:>9.0}",
                format!("{part:?}"),
                own / config.layers.len() as f64,
                bytes / BANDWIDTH * 1e6,
                own / us * 100.0,
                bytes / own / 1e3
            );
        }
        println!("sum of parts    {sum:>9.0}");
        Ok(())
    }
}
