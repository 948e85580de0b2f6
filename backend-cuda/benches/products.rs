//! What the device costs apart from kernels (launches, graphs, copies), and dense products at the shapes of real models.
//!
//! `cargo bench -p treeline-cuda --bench products`. Needs a GPU. Every product of a row runs over its own copy of the weight, all
//! of them larger than the second-level cache; the figure is the time of a graph of them, divided by their number, median of
//! ten launches. `TREELINE_GEMM=first` shows the library's own choice of algorithm.

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use treeline_cuda::Result;
use treeline_cuda::device::{Buffer, Dtype, Gemm, Gpu, Graph, Matrix};

/// Name, outputs, inputs, problems of a batch, output type.
const SHAPES: &[(&str, usize, usize, usize, Dtype)] = &[
    ("Kimi K2, rank of 8: q_a + kv_a", 2112, 7168, 1, Dtype::Bf16),
    ("Kimi K2, rank of 8: q_b", 1536, 1536, 1, Dtype::Bf16),
    ("Kimi K2, rank of 8: absorb keys", 512, 128, 8, Dtype::Bf16),
    ("Kimi K2, rank of 8: absorb values", 128, 512, 8, Dtype::Bf16),
    ("Kimi K2, rank of 8: o", 7168, 1024, 1, Dtype::Bf16),
    ("Kimi K2: router", 384, 7168, 1, Dtype::F32),
    ("Kimi K2, rank of 8: shared gate, up", 512, 7168, 1, Dtype::Bf16),
    ("Kimi K2, rank of 8: shared down", 7168, 256, 1, Dtype::Bf16),
    ("Kimi K2, rank of 8: head", 20480, 7168, 1, Dtype::F32),
    ("Qwen3-8B: q, k, v", 6144, 4096, 1, Dtype::Bf16),
    ("Qwen3-8B: gate, up", 24576, 4096, 1, Dtype::Bf16),
    ("Qwen3-8B: down", 4096, 12288, 1, Dtype::Bf16),
];

const ROWS: [usize; 5] = [1, 8, 17, 33, 65];

/// More than any second-level cache holds.
const COLD: usize = 400 << 20;

fn main() -> Result<()> {
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(e) => {
            println!("skipped: {e}");
            return Ok(());
        }
    };
    println!("{:?}", gpu.info());
    overheads(&gpu)?;
    println!("\nus a product (GB/s of weights)\n{:<40}{}", "", ROWS.map(|r| format!("{r:>16}")).concat());
    for &(name, outputs, inputs, batch, dtype) in SHAPES {
        let times = ROWS.map(|rows| product(&gpu, rows, outputs, inputs, batch, dtype));
        let bytes = (outputs * inputs * batch * 2) as f64;
        let mut line = format!("{name:<40}");
        for time in times {
            let us = time?;
            line += &format!("{:>9.2} ({:>4.0})", us, bytes / us / 1e3);
        }
        println!("{line}");
    }
    Ok(())
}

/// Median microseconds of a graph over ten launches.
fn median(gpu: &Gpu, graph: &Graph) -> Result<f64> {
    let (start, end) = (gpu.event()?, gpu.event()?);
    graph.launch()?;
    let mut times = Vec::new();
    for _ in 0..10 {
        start.record()?;
        graph.launch()?;
        end.record()?;
        times.push(f64::from(start.elapsed_ms(&end)?) * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[5])
}

fn product(gpu: &Gpu, rows: usize, outputs: usize, inputs: usize, batch: usize, dtype: Dtype) -> Result<f64> {
    let weight = outputs * inputs * batch;
    let copies = (COLD / (weight * 2)).clamp(1, 400);
    let w: Buffer<u16> = gpu.zeroed("weights", weight * copies)?;
    let x: Buffer<u16> = gpu.zeroed("input", rows * inputs * batch)?;
    let y: Buffer<f32> = gpu.zeroed("output", rows * outputs * batch)?;
    let matrix = |at, columns, step, dtype| Matrix { batch_stride: step, ..Matrix::new(at, columns, dtype) };
    let gemm = |copy: usize| Gemm {
        rows,
        outputs,
        inputs,
        batch,
        x: matrix(x.ptr(), inputs, rows * inputs, Dtype::Bf16),
        w: matrix(w.at(copy * weight), inputs, outputs * inputs, Dtype::Bf16),
        y: matrix(y.ptr(), outputs, rows * outputs, dtype),
        add: false,
    };
    gpu.gemm(&gemm(0))?;
    let graph = gpu.capture(|| (0..copies).try_for_each(|c| gpu.gemm(&gemm(c))))?;
    Ok(median(gpu, &graph)? / copies as f64)
}

/// What a launch costs the host, and what a node of a graph and a small copy cost the device.
fn overheads(gpu: &Gpu) -> Result<()> {
    let host = gpu.pinned::<u32>(1024)?;
    let a: Buffer<u32> = gpu.zeroed("a", 1024)?;
    let b: Buffer<u32> = gpu.zeroed("b", 1024)?;
    let host_us = |n: u32, f: &dyn Fn() -> Result<()>| -> Result<f64> {
        gpu.sync()?;
        let start = std::time::Instant::now();
        (0..n).try_for_each(|_| f())?;
        let us = start.elapsed().as_secs_f64() * 1e6 / f64::from(n);
        gpu.sync()?;
        Ok(us)
    };
    println!("host, us: queue a fill {:.2}", host_us(1000, &|| gpu.fill(&a, 0))?);
    println!("host, us: queue a push of 4 KB {:.2}", host_us(1000, &|| gpu.push(a.ptr(), &host, 1024))?);
    println!("host, us: fill and wait {:.2}", host_us(200, &|| gpu.fill(&a, 0).and_then(|()| gpu.sync()))?);
    let pull = || gpu.pull(&host, a.ptr(), 1024).and_then(|()| gpu.sync());
    println!("host, us: pull 4 KB and wait {:.2}", host_us(200, &pull)?);
    let copies = gpu.capture(|| (0..200).try_for_each(|_| gpu.copy(b.ptr(), a.ptr(), 4096)))?;
    println!("host, us: launch a graph of 200 copies {:.2}", host_us(100, &|| copies.launch())?);
    println!("device, us: a copy of 4 KB as a node {:.2}", median(gpu, &copies)? / 200.0);
    let big: Buffer<u8> = gpu.zeroed("big", 2 << 30)?;
    let half = 1usize << 30;
    let (start, end) = (gpu.event()?, gpu.event()?);
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        start.record()?;
        gpu.copy(big.at(half), big.ptr(), half)?;
        end.record()?;
        best = best.min(f64::from(start.elapsed_ms(&end)?) * 1e-3);
    }
    println!("device: copying reads and writes {:.0} GB/s together", 2.0 * half as f64 / best / 1e9);
    Ok(())
}
