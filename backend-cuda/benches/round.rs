//! What lies between a drafter's logits and the next pass, step by step: top-k, trees, plan, tokens, walk.
//!
//! `cargo bench -p treeline-cuda --bench round`. Needs a GPU. Each figure is microseconds of one step inside a graph of many,
//! median of 21 launches; logits rotate over more memory than the second-level cache holds where the row says `cold`.

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use treeline_core::{Program, ProgramBudget};
use treeline_cuda::Result;
use treeline_cuda::device::{Buffer, Gpu};
use treeline_cuda::ops::plan::{Plan, PlanArgs};
use treeline_cuda::ops::rows::{Bucket, RowPlan, RowsPtr, Sight};
use treeline_cuda::ops::sample::{Draw, Sample, SampleArgs, SeqSampling};
use treeline_cuda::ops::topk::{Lattice, TopK, TopKArgs};
use treeline_cuda::ops::tree::{Search, TreeArgs, TreeOp, TreeSeqs, TreeSizes, Trees};
use treeline_cuda::ops::walk::{Verdicts, Walk, WalkArgs};
use treeline_cuda::testing::Numbers;

/// More than any second-level cache holds.
const COLD: usize = 256 << 20;

fn main() -> Result<()> {
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(e) => {
            println!("skipped: {e}");
            return Ok(());
        }
    };
    println!("{:?}", gpu.info());
    logits(&gpu)?;
    trees(&gpu)?;
    rounds(&gpu)
}

/// Median microseconds of one of `repeats` runs of `body` inside a graph; `body` is told its number.
fn time(gpu: &Gpu, repeats: usize, body: &dyn Fn(usize) -> Result<()>) -> Result<f64> {
    body(0)?;
    let graph = gpu.capture(|| (0..repeats).try_for_each(body))?;
    let (start, end) = (gpu.event()?, gpu.event()?);
    graph.launch()?;
    let mut times = Vec::new();
    for _ in 0..21 {
        start.record()?;
        graph.launch()?;
        end.record()?;
        times.push(f64::from(start.elapsed_ms(&end)?) * 1e3 / repeats as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[10])
}

/// Logits with the spread of a language model's: most far below a few.
fn random_logits(n: &mut Numbers, len: usize) -> Vec<f32> {
    (0..len).map(|_| (n.unit() + n.unit() + n.unit() + n.unit()) * 4.0).collect()
}

fn logits(gpu: &Gpu) -> Result<()> {
    println!("\ntop-k and tokens: us (share of 4.1 TB/s), cold logits");
    for (vocab, all) in [(163_840usize, &[1usize, 7, 28, 65, 112, 448][..]), (151_936, &[7, 65])] {
        for &rows in all {
            let bytes = rows * vocab * 4;
            let sets = COLD.div_ceil(bytes).clamp(2, 64);
            let mut n = Numbers(rows as u64);
            let pool = random_logits(&mut n, sets * rows * vocab / 8 + vocab);
            // Sets differ by where they begin in one pool.
            let sets: Vec<Buffer<f32>> =
                (0..sets).map(|i| gpu.upload("logits", &shifted(&pool, i, rows * vocab))).collect::<Result<_>>()?;
            let share = |us: f64| format!("{us:>8.2} ({:>3.0}%)", bytes as f64 / us / 4.1e6 * 100.0);
            let mut line = format!("{vocab:>7} x {rows:>4}");
            for width in [16, 64, 256] {
                let lattice = Lattice::new(gpu, rows, 1, width)?;
                let op = TopK::new(gpu, vocab, rows, width)?;
                let us = time(gpu, 40, &|i| {
                    let logits = sets[i % sets.len()].ptr();
                    let source = treeline_cuda::device::Ptr::NULL;
                    op.run(gpu, rows as u32, &TopKArgs { logits, stride: vocab, source, out: lattice.ptrs() })
                })?;
                line += &format!("  top {width} {}", share(us));
            }
            let op = Sample::new(gpu, vocab, rows)?;
            let mut plan = RowPlan::new(gpu, rows, rows, 0)?;
            (0..rows).try_for_each(|i| plan.add(0, 100 + i as u32, &[1], Sight::Causal))?;
            plan.push(gpu, Bucket { rows: rows as u32, seqs: rows as u32 })?;
            for (draw, temperature, top_k, top_p) in [
                (Draw::Greedy, 0.0, 0, 1.0),
                (Draw::Sample, 1.0, 0, 1.0),
                (Draw::Filter, 1.0, 0, 0.95),
                (Draw::Filter, 0.6, 40, 0.95),
            ] {
                let one = SeqSampling { seed: 1, request: 2, temperature, top_k, top_p, unused: 0 };
                let sampling = gpu.upload("sampling", &vec![one; rows])?;
                let out = gpu.alloc::<u32>("tokens", rows)?;
                let us = time(gpu, 20, &|i| {
                    let args = SampleArgs {
                        logits: sets[i % sets.len()].ptr(),
                        stride: vocab,
                        source: treeline_cuda::device::Ptr::NULL,
                        plan: plan.ptrs(),
                        sampling: sampling.ptr(),
                        out: out.ptr(),
                    };
                    op.run(gpu, draw, rows as u32, &args)
                })?;
                line += &format!("  {draw:?} {}", share(us));
            }
            println!("{line}");
        }
    }
    Ok(())
}

fn shifted(pool: &[f32], by: usize, len: usize) -> Vec<f32> {
    pool.iter().cycle().skip(by * 977 % pool.len()).take(len).copied().collect()
}

/// A batch of drafts on the device, and everything a round needs.
struct Bench {
    seqs: usize,
    sizes: TreeSizes,
    lattice: Lattice,
    words: Buffer<u32>,
    trees: Trees,
    plan: RowPlan,
    judged: Buffer<u32>,
    verdicts: Verdicts,
    overflow: Buffer<u32>,
}

impl Bench {
    fn new(gpu: &Gpu, seqs: usize, levels: usize, width: usize, nodes: usize) -> Result<Self> {
        let mut n = Numbers(seqs as u64);
        let lattice = Lattice::new(gpu, seqs, levels, width)?;
        let (mut token, mut logp) = (Vec::new(), Vec::new());
        for _ in 0..seqs * levels {
            // A confident draft now and then, a flat one otherwise.
            let sharp = 1.0 + 4.0 * n.unit().abs();
            let weights: Vec<f32> = (0..width).map(|r| -sharp * (1.0 + r as f32).ln() - 0.1 * n.unit().abs()).collect();
            let sum: f32 = weights.iter().map(|w| w.exp()).sum();
            let mut row: Vec<f32> = weights.iter().map(|w| w - sum.ln()).collect();
            row.sort_by(|a, b| b.total_cmp(a));
            logp.extend(row);
            token.extend((0..width as u32).map(|r| r * 5));
        }
        let out = lattice.ptrs();
        gpu.copy_in(out.token, &token)?;
        gpu.copy_in(out.logp, &logp)?;
        gpu.copy_in(out.count, &vec![width as u32; seqs * levels])?;
        let rows = seqs * (nodes + 1);
        let of = |x: u32| vec![x; seqs];
        let words = [of(7), of(nodes as u32), of(levels as u32), of(0), of(1000)].concat();
        Ok(Self {
            seqs,
            sizes: TreeSizes { seqs, levels, width, nodes },
            lattice,
            words: gpu.upload("state", &words)?,
            trees: Trees::new(gpu, seqs, nodes)?,
            plan: RowPlan::new(gpu, rows, seqs, 0)?,
            judged: gpu.upload("judged", &vec![0u32; rows])?,
            verdicts: Verdicts::new(gpu, seqs, levels)?,
            overflow: gpu.zeroed("overflow", 1)?,
        })
    }

    fn args(&self) -> TreeArgs {
        let at = |i: usize| self.words.at(i * self.seqs);
        let seqs = TreeSeqs { root: at(0), nodes: at(1), levels: at(2) };
        TreeArgs { seqs, lattice: self.lattice.ptrs(), trees: self.trees.ptrs() }
    }

    fn plan(&self, gpu: &Gpu, op: &Plan) -> Result<()> {
        let at = |i: usize| self.words.at(i * self.seqs);
        let args = PlanArgs {
            trees: self.trees.ptrs(),
            stride: self.trees.stride(),
            kv: at(3),
            start: at(4),
            plan: self.plan.ptrs(),
            sink: 0,
            overflow: self.overflow.ptr(),
        };
        let rows = (self.seqs * (self.sizes.nodes + 1)) as u32;
        op.run(gpu, Bucket { rows, seqs: self.seqs as u32 }, &args)
    }

    fn walk(&self, gpu: &Gpu, op: &Walk) -> Result<()> {
        let RowsPtr { .. } = self.plan.ptrs();
        let trees = self.trees.ptrs();
        let args = WalkArgs {
            plan: self.plan.ptrs(),
            token: trees.token,
            parent: trees.parent,
            stride: self.trees.stride(),
            // Token 0 is every level's best: the longest walk.
            judged: self.judged.ptr(),
            truth: treeline_cuda::device::Ptr::NULL,
            draft_fault: trees.fault,
            out: self.verdicts.ptrs(),
        };
        op.run(gpu, self.seqs as u32, &args)
    }
}

fn trees(gpu: &Gpu) -> Result<()> {
    println!("\ntrees: us, queue | cut | shared budget | levels (4 a level) | chain");
    for (levels, nodes) in
        [(7, 8), (7, 16), (7, 32), (7, 64), (15, 16), (15, 32), (15, 64), (7, 128), (7, 256), (15, 256)]
    {
        let mut line = format!("{levels:>2} levels, {nodes:>3} nodes:");
        for seqs in [1, 8, 64] {
            let bench = Bench::new(gpu, seqs, levels, nodes, nodes)?;
            let fixed = Program::BestFirst { spine: 0, budget: ProgramBudget::Fixed(nodes as u32) };
            let shared = Program::BestFirst { spine: 0, budget: ProgramBudget::Shared(nodes as u32 / 2) };
            let layers = Program::TopK { width: 4, depth: levels as u32 };
            line += &format!("  batch {seqs}:");
            for (program, search) in [
                (&fixed, Search::Queue),
                (&fixed, Search::Cut),
                (&shared, Search::Auto),
                (&layers, Search::Auto),
                (&Program::Chain, Search::Auto),
            ] {
                line += &match TreeOp::with_search(gpu, program, bench.sizes, search) {
                    Ok(op) => format!("{:>7.2}", time(gpu, 40, &|_| op.run(gpu, seqs as u32, &bench.args()))?),
                    Err(_) => format!("{:>7}", "-"),
                };
            }
        }
        println!("{line}");
    }
    Ok(())
}

fn rounds(gpu: &Gpu) -> Result<()> {
    println!("\nafter a pass: us of tree (auto), plan, walk, and of the three in one graph");
    for (levels, nodes) in [(7, 16), (7, 64), (15, 64), (7, 256)] {
        for seqs in [1, 4, 16, 64] {
            let bench = Bench::new(gpu, seqs, levels, nodes, nodes)?;
            let program = Program::BestFirst { spine: 0, budget: ProgramBudget::Fixed(nodes as u32) };
            let op = TreeOp::new(gpu, &program, bench.sizes)?;
            let (plan, walk) = (Plan::new(gpu)?, Walk::new(gpu, levels)?);
            let tree = |_| op.run(gpu, seqs as u32, &bench.args());
            let us = [
                time(gpu, 40, &tree)?,
                time(gpu, 40, &|_| bench.plan(gpu, &plan))?,
                time(gpu, 40, &|_| bench.walk(gpu, &walk))?,
                time(gpu, 40, &|i| {
                    tree(i).and_then(|()| bench.plan(gpu, &plan)).and_then(|()| bench.walk(gpu, &walk))
                })?,
            ];
            println!(
                "{levels:>2} levels, {nodes:>3} nodes, batch {seqs:>2}: {}",
                us.map(|t| format!("{t:>7.2}")).concat()
            );
        }
    }
    Ok(())
}
