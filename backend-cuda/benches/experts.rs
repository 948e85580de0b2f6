//! The expert layer (routing, gate/up, activation, down, sum) at the shape of one rank of eight of Kimi K2: 384 experts, top 8,
//! hidden 7168, 256 columns of the 2048, INT4 in groups of 32, synthetic weights, independent routing.
//!
//! `cargo bench -p treeline-cuda --bench experts`. Needs a GPU. A figure is the time of a graph of launches over their number,
//! median of the replays; every launch of a graph has its own routing, and they alternate between two layers (2.4 GB).
//! Words after `--` choose variants by the beginning of their names.

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use bytemuck::{Pod, Zeroable};
use treeline_cuda::Result;
use treeline_cuda::device::{Buffer, Dtype, Gpu, KernelArgs, Launch, Ptr};
use treeline_cuda::ops::moe::{
    ExpertKind, ExpertShape, ExpertWeights, Experts, ExpertsArgs, Router, RouterArgs, Tuning,
};
use treeline_cuda::ops::rows::{Bucket, RowsPtr};
use treeline_cuda::testing::{Numbers, to_bf16};

const SHAPE: ExpertShape =
    ExpertShape { hidden: 7168, intermediate: 256, experts: 384, top_k: 8, kind: ExpertKind::Int4 };
const ROUTER: treeline_checkpoint::Router =
    treeline_checkpoint::Router::Sigmoid { n_group: 1, topk_group: 1, norm_topk: true, scaling: 2.827 };
const ROWS: [usize; 12] = [1, 2, 4, 8, 16, 32, 48, 64, 128, 256, 512, 1024];
/// Row counts that t0 + c U is fitted to.
const FITTED: [usize; 4] = [8, 16, 32, 64];
const MOST: usize = 1024;
const LAUNCHES: usize = 12;
const REPLAYS: usize = 21;

/// What a graph holds of the layer.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Route,
    Up,
    Down,
    Whole,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ReadArgs {
    from: Ptr,
    out: Ptr,
    bytes: u64,
}

impl KernelArgs for ReadArgs {}

fn main() -> Result<()> {
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(e) => {
            println!("skipped: {e}");
            return Ok(());
        }
    };
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let best = Tuning::of(Dtype::Bf16, &SHAPE).expect("the shape is served");
    let variants = [
        ("best", best),
        ("late", Tuning { early: false, ..best }),
        ("up3", Tuning { up_stages: 3, ..best }),
        ("down3", Tuning { down_stages: 3, ..best }),
        ("small", Tuning { down_tiles: 2, down_stages: 4, ..best }),
    ];
    let mut bench = Bench::new(&gpu, best)?;
    let bandwidth = bench.bandwidth()?;
    println!("{}: plain reads {bandwidth:.3} TB/s; expert {} bytes", gpu.info().name, bench.experts.expert_bytes());
    for (name, tuning) in variants {
        if !wanted.is_empty() && !wanted.iter().any(|w| name.starts_with(w.as_str())) {
            continue;
        }
        bench.experts = Experts::with(&gpu, Dtype::Bf16, SHAPE, MOST, Some(tuning))?;
        println!("\n{name}: {tuning:?}");
        println!("rows      U |  layer us  of reads | route us    up us  of reads  down us  of reads");
        let mut points = Vec::new();
        for rows in ROWS {
            let (us, u) = bench.time(rows, Part::Whole)?;
            let [route, up, down] = [Part::Route, Part::Up, Part::Down].map(|part| bench.time(rows, part));
            let (route, up, down) = (route?.0, up?.0, down?.0);
            let share = |us: f64, part: f64| u * bench.experts.expert_bytes() as f64 * part / us / 1e6 / bandwidth;
            println!(
                "{rows:>4} {u:>6.1} | {us:>9.2} {:>9.3} | {route:>8.2} {up:>8.2} {:>9.3} {down:>8.2} {:>9.3}",
                share(us, 1.0),
                share(up, 2.0 / 3.0),
                share(down, 1.0 / 3.0)
            );
            if FITTED.contains(&rows) {
                points.push((u, us));
            }
        }
        let (t0, c) = fit(&points);
        println!("t0 {t0:.2} us + {c:.4} us per expert over rows {FITTED:?}");
    }
    Ok(())
}

/// Least squares of y = a + b x.
fn fit(points: &[(f64, f64)]) -> (f64, f64) {
    let n = points.len() as f64;
    let (sx, sy) = points.iter().fold((0.0, 0.0), |(a, b), p| (a + p.0, b + p.1));
    let (sxx, sxy) = points.iter().fold((0.0, 0.0), |(a, b), p| (a + p.0 * p.0, b + p.0 * p.1));
    let b = (n * sxy - sx * sy) / (n * sxx - sx * sx);
    ((sy - b * sx) / n, b)
}

fn median(mut x: Vec<f64>) -> f64 {
    x.sort_by(f64::total_cmp);
    x[x.len() / 2]
}

struct Bench {
    gpu: Gpu,
    experts: Experts,
    router: Router,
    layers: [ExpertWeights; 2],
    seq: Buffer<i32>,
    logits: Buffer<f32>,
    bias: Buffer<f32>,
    h: Buffer<u16>,
    out: Buffer<u16>,
    ids: Buffer<i32>,
    weights: Buffer<f32>,
    distinct: Buffer<u32>,
}

impl Bench {
    fn new(gpu: &Gpu, tuning: Tuning) -> Result<Self> {
        let experts = Experts::with(gpu, Dtype::Bf16, SHAPE, MOST, Some(tuning))?;
        let layers = [experts.layer(gpu)?, experts.layer(gpu)?];
        for (seed, layer) in layers.iter().enumerate() {
            experts.synthetic(gpu, layer, seed as u64)?;
        }
        let mut numbers = Numbers(1);
        Ok(Self {
            gpu: gpu.clone(),
            router: Router::new(gpu, SHAPE.experts, SHAPE.top_k, &ROUTER, MOST)?,
            seq: gpu.upload("seq", &[0; MOST])?,
            logits: gpu.upload("logits", &numbers.floats(LAUNCHES * MOST * SHAPE.experts, 3.0))?,
            bias: gpu.upload("bias", &[0.0f32; SHAPE.experts])?,
            h: gpu.upload("h", &to_bf16(&numbers.floats(MOST * SHAPE.hidden, 1.0)))?,
            out: gpu.alloc("out", MOST * SHAPE.hidden)?,
            ids: gpu.alloc("ids", MOST * SHAPE.top_k)?,
            weights: gpu.alloc("weights", MOST * SHAPE.top_k)?,
            distinct: gpu.alloc("distinct", LAUNCHES)?,
            layers,
            experts,
        })
    }

    /// Median microseconds of one launch of `part`, and how many distinct experts a launch reads. For the halves of the experts
    /// the routing is that of the last launch, so only the layers alternate.
    fn time(&self, rows: usize, part: Part) -> Result<(f64, f64)> {
        let gpu = &self.gpu;
        let bucket = Bucket { rows: rows as u32, seqs: 1 };
        let of_rows = RowsPtr { seq: self.seq.ptr(), ..RowsPtr::zeroed() };
        let experts = ExpertsArgs {
            rows: of_rows,
            h: self.h.ptr(),
            ids: self.ids.ptr(),
            weights: self.weights.ptr(),
            dispatch: self.router.dispatch(),
            out: self.out.ptr(),
        };
        let run = |launch: usize, part: Part| {
            let layer = &self.layers[launch % 2];
            if matches!(part, Part::Whole | Part::Route) {
                let args = RouterArgs {
                    rows: of_rows,
                    logits: self.logits.at(launch * MOST * SHAPE.experts),
                    bias: self.bias.ptr(),
                    forced: Ptr::NULL,
                    ids: self.ids.ptr(),
                    weights: self.weights.ptr(),
                    distinct: self.distinct.at(launch),
                };
                self.router.run(gpu, bucket, &args)?;
            }
            match part {
                Part::Route => Ok(()),
                Part::Up => self.experts.run_up(gpu, bucket, &experts, layer),
                Part::Down => self.experts.run_down(gpu, bucket, &experts, layer),
                Part::Whole => self.experts.run(gpu, bucket, &experts, layer),
            }
        };
        (0..LAUNCHES).try_for_each(|i| run(i, Part::Whole))?;
        let distinct = gpu.read_all(&self.distinct)?;
        let graph = gpu.capture(|| (0..LAUNCHES).try_for_each(|i| run(i, part)))?;
        let (begin, end) = (gpu.event()?, gpu.event()?);
        let mut times = Vec::new();
        for replay in 0..REPLAYS + 2 {
            begin.record()?;
            graph.launch()?;
            end.record()?;
            let ms = begin.elapsed_ms(&end)?;
            if replay >= 2 {
                times.push(f64::from(ms) * 1e3 / LAUNCHES as f64);
            }
        }
        Ok((median(times), f64::from(distinct.iter().sum::<u32>()) / LAUNCHES as f64))
    }

    /// TB/s of plain reads of the weights.
    fn bandwidth(&self) -> Result<f64> {
        let gpu = &self.gpu;
        let kernel = gpu.kernel("moe_read.cu", "moe_read", &[])?;
        let bytes = ((SHAPE.experts * self.experts.expert_bytes()) as u64) & !0xffff;
        let (begin, end) = (gpu.event()?, gpu.event()?);
        let mut best = Vec::new();
        for blocks in [2, 4] {
            let mut times = Vec::new();
            for i in 0..12 {
                let args = ReadArgs { from: self.layers[i % 2].ptr(), out: self.distinct.ptr(), bytes };
                begin.record()?;
                gpu.launch(&kernel, Launch::flat(gpu.info().sms * blocks, 512), &args)?;
                end.record()?;
                times.push(f64::from(begin.elapsed_ms(&end)?) * 1e3);
            }
            best.push(bytes as f64 / median(times) / 1e6);
        }
        Ok(best.into_iter().fold(0.0, f64::max))
    }
}
