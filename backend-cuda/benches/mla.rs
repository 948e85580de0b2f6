//! Latent attention with a draft tree at the shape of one rank of eight of Kimi K2 (8 heads, 512 + 64), every tile form.
//!
//! `cargo bench -p treeline-cuda --bench mla`. Needs a GPU. A figure is the time of a graph of launches divided by their number,
//! median of ten replays; each launch reads its own caches, together larger than the second-level cache. TB/s counts each cache
//! row once, TFLOP/s the products of real rows, 2 · rows · heads · keys · (2 · 512 + 64). Words after `--` that contain `x` name
//! single points, rows × context × batch (`65x8192x1`); `blocks=126` changes the number of blocks, `heads=16` the heads;
//! `steps=1` queues the attention alone, `steps=2` joining alone, `early=0` starts no kernel beside the one before it.

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use treeline_cuda::Result;
use treeline_cuda::device::{Buffer, Dtype, Gpu};
use treeline_cuda::ops::mla_attend::{MlaAttend, MlaCall, MlaForm, MlaSteps};
use treeline_cuda::ops::rows::{Bucket, RowPlan, Sight};
use treeline_cuda::testing::{Numbers, to_bf16};

const LORA: usize = 512;
const ROPE: usize = 64;
const DIM: usize = LORA + ROPE;

/// Bytes that one graph reads at least.
const COLD: usize = 300 << 20;

#[derive(Clone, Copy)]
struct Point {
    rows: usize,
    context: usize,
    batch: usize,
}

struct Bench {
    gpu: Gpu,
    heads: usize,
    blocks: u32,
    steps: MlaSteps,
    cache: Buffer<u16>,
}

fn main() -> Result<()> {
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(e) => {
            println!("skipped: {e}");
            return Ok(());
        }
    };
    let words: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let option = |name: &str| words.iter().find_map(|w| w.strip_prefix(name)?.strip_prefix('=')?.parse::<usize>().ok());
    let mut points: Vec<Point> = words.iter().filter_map(|w| point(w)).collect();
    if points.is_empty() {
        for context in [1024, 8192, 65536] {
            for batch in [1, 8, 32] {
                points.extend([1, 2, 4, 8, 17, 33, 65, 129].map(|rows| Point { rows, context, batch }));
            }
        }
    }
    let most = points.iter().map(|p| p.batch * (p.context + p.rows)).max().unwrap_or(0) * DIM;
    let blocks = option("blocks").map_or(gpu.info().sms, |b| b as u32);
    let which = option("steps").unwrap_or(3);
    let steps = MlaSteps { attend: which & 1 != 0, join: which & 2 != 0, early: option("early") != Some(0) };
    let bench =
        Bench { steps, heads: option("heads").unwrap_or(8), blocks, cache: caches(&gpu, (2 * most).max(COLD))?, gpu };
    let forms = MlaForm::tiles(&bench.gpu, Dtype::Bf16, LORA, ROPE);
    println!("{} heads, {} blocks, {:?}", bench.heads, bench.blocks, bench.steps);
    println!(
        "rows context batch{}",
        forms.iter().map(|f| format!(" | {f:>9?} us    TB/s  TFLOP/s")).collect::<String>()
    );
    for p in points {
        let mut line = format!("{:>4} {:>7} {:>5}", p.rows, p.context, p.batch);
        for form in &forms {
            let us = bench.time(*form, p)?;
            let keys = (p.batch * (p.context + p.rows)) as f64;
            let bytes = keys * (DIM * 2) as f64;
            let flops = 2.0 * (p.rows * bench.heads) as f64 * keys * (DIM + LORA) as f64;
            line += &format!(" | {us:>12.2} {:>7.2} {:>8.1}", bytes / us / 1e6, flops / us / 1e6);
        }
        println!("{line}");
    }
    Ok(())
}

fn point(word: &str) -> Option<Point> {
    let mut numbers = word.split('x').map(|n| n.parse::<usize>().ok());
    Some(Point { rows: numbers.next()??, context: numbers.next()??, batch: numbers.next()?? })
}

/// Random numbers: a block of them, copied until the buffer is full.
fn caches(gpu: &Gpu, len: usize) -> Result<Buffer<u16>> {
    let block = to_bf16(&Numbers(1).floats(8 << 20, 1.0));
    let cache = gpu.alloc("caches", len + block.len())?;
    gpu.copy_in(cache.ptr(), &block)?;
    let mut at = block.len();
    while at < len {
        gpu.copy(cache.at(at), cache.ptr(), block.len() * 2)?;
        at += block.len();
    }
    Ok(cache)
}

impl Bench {
    /// Median microseconds of one call.
    fn time(&self, form: MlaForm, p: Point) -> Result<f64> {
        let (gpu, heads) = (&self.gpu, self.heads);
        let stride = p.context + p.rows;
        let mut plan = RowPlan::new(gpu, p.rows * p.batch, p.batch, 0)?;
        let mut numbers = Numbers(7);
        for s in 0..p.batch {
            let parents: Vec<u32> = (0..p.rows as u64).map(|i| numbers.below(i) as u32).collect();
            plan.add((s * stride) as u32, p.context as u32, &vec![1; p.rows], Sight::Tree(&parents))?;
        }
        let bucket = Bucket { rows: (p.rows * p.batch) as u32, seqs: p.batch as u32 };
        plan.push(gpu, bucket)?;
        let attend = MlaAttend::with_form(gpu, form, Dtype::Bf16, (heads, LORA, ROPE), bucket, stride, self.blocks)?;
        let pairs = p.rows * p.batch * heads;
        let q = gpu.upload("queries", &to_bf16(&numbers.floats(pairs * DIM, 0.2)))?;
        let out: Buffer<u16> = gpu.alloc("output", pairs * LORA)?;
        let of_one = p.batch * stride * DIM;
        let copies = ((self.cache.len() - (8 << 20)) / of_one).clamp(1, 400);
        // A long pass needs no more launches to be measured well.
        let least = if of_one > COLD { 4 } else { 20 };
        let launches = copies.max(least).min((COLD / 2).div_ceil(of_one).max(least));
        let run = |i: usize| {
            let cache = self.cache.at(i % copies * of_one);
            let call = MlaCall { rows: plan.ptrs(), q: q.ptr(), cache, out: out.ptr(), window: 0 };
            attend.run_steps(gpu, bucket, &call, self.steps)
        };
        run(0)?;
        let graph = gpu.capture(|| (0..launches).try_for_each(&run))?;
        let (start, end) = (gpu.event()?, gpu.event()?);
        graph.launch()?;
        let mut times = Vec::new();
        for _ in 0..10 {
            start.record()?;
            graph.launch()?;
            end.record()?;
            times.push(f64::from(start.elapsed_ms(&end)?) * 1e3 / launches as f64);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[5])
    }
}
