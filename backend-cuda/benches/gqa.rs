//! Grouped-query attention of trees at the shapes of real models, every tile side by side.
//!
//! `cargo bench -p treeline-cuda --bench gqa`. Needs a GPU. Each call of a graph reads its own cache, all of them larger than
//! the second-level cache; the figure is the time of the graph divided by its calls, median of fifteen launches. GB/s counts
//! each key and value once. `best` is the tile that a pass would take.

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use bytemuck::{Pod, Zeroable};
use treeline_cuda::Result;
use treeline_cuda::device::{Buffer, Dtype, Gpu, Graph, KernelArgs, Launch, Ptr};
use treeline_cuda::ops::gqa_attend::{GqaAttend, GqaAttendCall, GqaForm, GqaShape};
use treeline_cuda::ops::rows::{Bucket, RowPlan, Sight};
use treeline_cuda::testing::Numbers;

const SHAPES: [(&str, GqaShape); 3] = [
    ("Qwen3-8B, 32 / 8 heads", GqaShape { heads: 32, kv_heads: 8, head_dim: 128 }),
    ("Kimi drafter, 64 / 8 heads", GqaShape { heads: 64, kv_heads: 8, head_dim: 128 }),
    ("a rank of 8, 8 / 1 heads", GqaShape { heads: 8, kv_heads: 1, head_dim: 128 }),
];

/// More than any second-level cache holds.
const COLD: usize = 300 << 20;

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Fill {
    out: Ptr,
    count: u64,
    seed: u64,
    scale: f32,
    pad: u32,
}

impl KernelArgs for Fill {}

fn main() -> Result<()> {
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(e) => {
            println!("skipped: {e}");
            return Ok(());
        }
    };
    println!("{:?}", gpu.info());
    for (name, shape) in SHAPES {
        let max = Bucket { rows: 65 * 8, seqs: 8 };
        let sms = gpu.info().sms;
        let forms = GqaForm::all(&gpu, Dtype::Bf16, shape).into_iter().filter(|f| *f != GqaForm::Any);
        let attends = forms
            .map(|form| Ok((form, GqaAttend::with_form(&gpu, form, Dtype::Bf16, shape, max, sms)?)))
            .collect::<Result<Vec<_>>>()?;
        println!("\n{name}: us a call (GB/s)");
        println!("{:>5}{:>6}{:>8}{:>6}{}", "seqs", "rows", "context", "best", heights(&attends));
        for (seqs, rows, context) in [
            (1, 1, 1024),
            (1, 1, 8192),
            (1, 1, 32768),
            (1, 8, 8192),
            (1, 17, 1024),
            (1, 17, 8192),
            (1, 17, 32768),
            (1, 65, 1024),
            (1, 65, 8192),
            (1, 65, 32768),
            (8, 1, 8192),
            (8, 17, 8192),
            (8, 65, 8192),
        ] {
            pass(&gpu, shape, &attends, seqs, rows, context)?;
        }
    }
    Ok(())
}

/// The tiles that no form before this one has.
fn own(form: GqaForm, attend: &GqaAttend) -> std::ops::Range<usize> {
    (if form == GqaForm::Hopper { 2 } else { 0 })..attend.heights()
}

fn heights(attends: &[(GqaForm, GqaAttend)]) -> String {
    let of = |(form, attend): &(GqaForm, GqaAttend)| {
        own(*form, attend).map(|h| format!("{:>16}", format!("{form:?} {h}"))).collect::<String>()
    };
    attends.iter().map(of).collect()
}

fn pass(
    gpu: &Gpu,
    shape: GqaShape,
    attends: &[(GqaForm, GqaAttend)],
    seqs: usize,
    rows: usize,
    context: usize,
) -> Result<()> {
    let GqaShape { heads, kv_heads, head_dim } = shape;
    let bucket = Bucket { rows: (seqs * rows) as u32, seqs: seqs as u32 };
    let room = context + rows;
    let cache = (seqs * room + 1) * kv_heads * head_dim;
    let copies = (COLD / (cache * 4)).clamp(2, 64);
    let k = random(gpu, cache * copies, 1, 1.0)?;
    let v = random(gpu, cache * copies, 2, 1.0)?;
    let q = random(gpu, seqs * rows * heads * head_dim, 3, 0.3)?;
    let out: Buffer<u16> = gpu.zeroed("out", seqs * rows * heads * head_dim)?;
    let mut plan = RowPlan::new(gpu, seqs * rows, seqs, (seqs * room) as u32)?;
    let mut numbers = Numbers(4);
    for s in 0..seqs {
        let parents: Vec<u32> = (0..rows).map(|i| numbers.below(i.max(1) as u64) as u32).collect();
        plan.add((s * room) as u32, context as u32, &vec![0; rows], Sight::Tree(&parents))?;
    }
    plan.push(gpu, bucket)?;
    let call = |copy: usize| GqaAttendCall {
        rows: plan.ptrs(),
        q: q.ptr(),
        k_cache: k.at(copy * cache),
        v_cache: v.at(copy * cache),
        out: out.ptr(),
        window: 0,
        window_tail: true,
    };
    let bytes = (seqs * room * kv_heads * head_dim * 4) as f64;
    let mut line = format!("{seqs:>5}{rows:>6}{context:>8}{:>6}", attends.last().map_or(0, |(_, a)| a.height(bucket)));
    for (form, attend) in attends {
        for height in own(*form, attend) {
            let calls = || (0..copies).try_for_each(|c| attend.run_with(gpu, bucket, &call(c), height));
            let us = median(gpu, &gpu.capture(calls)?)? / copies as f64;
            line += &format!("{us:>9.2} ({:>4.0})", bytes / us / 1e3);
        }
    }
    println!("{line}");
    Ok(())
}

fn random(gpu: &Gpu, count: usize, seed: u64, scale: f32) -> Result<Buffer<u16>> {
    let buffer: Buffer<u16> = gpu.alloc("random numbers", count)?;
    let fill = gpu.kernel("fill.cu", "fill", &[("ACT_BF16", 1)])?;
    let args = Fill { out: buffer.ptr(), count: count as u64, seed, scale, pad: 0 };
    gpu.launch(&fill, Launch::flat((count as u32).div_ceil(256 * 8), 256), &args)?;
    Ok(buffer)
}

/// Median microseconds of a graph.
fn median(gpu: &Gpu, graph: &Graph) -> Result<f64> {
    let (start, end) = (gpu.event()?, gpu.event()?);
    graph.launch()?;
    let mut times = Vec::new();
    for _ in 0..15 {
        start.record()?;
        graph.launch()?;
        end.record()?;
        times.push(f64::from(start.elapsed_ms(&end)?) * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[7])
}
