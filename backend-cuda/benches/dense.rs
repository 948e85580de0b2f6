//! Products with few rows at the shapes of one rank of Kimi K2: own kernels by number of splits beside the library.
//!
//! `cargo bench -p treeline-cuda --bench dense`. Needs a GPU. Every product of a graph runs over its own copy of the weight, all of
//! them together larger than the second-level cache; the figure is the time of the graph over their number, median of ten
//! launches.

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use treeline_cuda::Result;
use treeline_cuda::device::{Buffer, Dtype, Gemm, Gpu, Graph, Matrix, Ptr};
use treeline_cuda::ops::dense::{Dense, DenseCall, Form, Glu};

/// Name, outputs (f32 where a SwiGLU goes with them), width of the SwiGLU, inputs, problems.
const SHAPES: &[(&str, usize, usize, usize, usize)] = &[
    ("q_a + kv_a", 2112, 0, 7168, 1),
    ("q_b", 1536, 0, 1536, 1),
    ("absorb keys", 512, 0, 128, 8),
    ("absorb values", 128, 0, 512, 8),
    ("o", 7168, 0, 1024, 1),
    ("router, shared gate and up", 384, 256, 7168, 1),
    ("shared down", 7168, 0, 256, 1),
    ("dense gate and up", 0, 2304, 7168, 1),
    ("dense down", 7168, 0, 2304, 1),
];

const ROWS: [usize; 5] = [1, 8, 17, 33, 40];

/// Other forms of the kernels.
const FORMS: &[Form] = &[
    Form::new(1, 4, 2, 8, 2),
    Form::new(1, 6, 1, 16, 1),
    Form::new(3, 4, 2, 8, 2),
    Form::new(3, 5, 1, 16, 1),
    Form::new(5, 4, 2, 8, 1),
    Form::new(5, 3, 1, 16, 1),
];
const SPLITS: [usize; 7] = [1, 2, 3, 4, 6, 8, 12];
const COLD: usize = 300 << 20;

fn main() -> Result<()> {
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(e) => {
            println!("skipped: {e}");
            return Ok(());
        }
    };
    let dense = Dense::new(&gpu)?;
    println!(
        "us a launch (GB/s of weights); the library's figure is that of its products one by one, without activation"
    );
    println!("{:<28}{:>5}{:>16}{:>16}  splits {SPLITS:?}", "", "rows", "library", "own");
    for shape in SHAPES {
        for rows in ROWS {
            line(&gpu, &dense, *shape, rows)?;
        }
    }
    Ok(())
}

fn line(gpu: &Gpu, dense: &Dense, shape: (&str, usize, usize, usize, usize), rows: usize) -> Result<()> {
    let (name, outputs, inner, inputs, batch) = shape;
    let elements = (outputs * batch + 2 * inner) * inputs;
    let copies = COLD.div_ceil(elements * 2).clamp(4, 200);
    let weights: Buffer<u16> = gpu.alloc("weights", elements * copies)?;
    // A pattern of small numbers: neither zeros nor NaN.
    let pattern: Vec<u16> = (0..elements).map(|i| 0x3c00 + (i * 2_654_435_761 % 251) as u16).collect();
    (0..copies).try_for_each(|i| gpu.copy_in(weights.at(i * elements), &pattern))?;
    let x: Buffer<u16> = gpu.upload("x", &vec![0x3c21; rows * inputs * batch])?;
    let y: Buffer<f32> = gpu.zeroed("y", rows * (outputs * batch + 2 * inner).max(1))?;
    let z: Buffer<u16> = gpu.zeroed("z", rows * inner.max(1))?;
    let dtype = if inner > 0 { Dtype::F32 } else { Dtype::Bf16 };
    let of = |at: Ptr, stride: usize, batch_stride: usize, dtype: Dtype| Matrix { at, stride, batch_stride, dtype };
    let call = |i: usize| DenseCall {
        rows,
        inputs,
        batch,
        x: of(x.ptr(), inputs * batch, inputs, Dtype::Bf16),
        w: of(weights.at(i * elements), inputs, outputs * inputs, Dtype::Bf16),
        outputs,
        y: of(y.ptr(), outputs * batch, outputs, dtype),
        add: false,
        glu: (inner > 0).then(|| Glu { w: weights.at(i * elements + outputs * inputs), inner, z: z.ptr() }),
        queries: None,
    };
    let library = time(gpu, copies, |i| {
        let DenseCall { x, w, y, .. } = call(i);
        let gemm = |outputs: usize, w: Matrix, y: Matrix| Gemm { rows, outputs, inputs, batch, x, w, y, add: false };
        if outputs > 0 {
            gpu.gemm(&gemm(outputs, w, y))?;
        }
        if inner > 0 {
            let at = weights.at(i * elements + outputs * inputs);
            gpu.gemm(&gemm(
                2 * inner,
                Matrix::new(at, inputs, Dtype::Bf16),
                Matrix::new(y.at, 2 * inner, Dtype::Bf16),
            ))?;
        }
        Ok(())
    })?;
    let own = time(gpu, copies, |i| dense.run(gpu, &call(i)))?;
    let rate = |us: f64| elements as f64 * 2.0 / us / 1e3;
    let mut text =
        format!("{name:<28}{rows:>5}{library:>9.2} ({:>4.0}){own:>9.2} ({:>4.0})  ", rate(library), rate(own));
    let tiles = (outputs.div_ceil(64) + inner.div_ceil(32)) * batch;
    for splits in SPLITS {
        if splits == 1 || tiles * splits <= 2 * gpu.info().sms as usize {
            // Too few splits leave more of the rows to a block than its shared memory holds.
            match time(gpu, copies, |i| dense.run_split(gpu, &call(i), splits)) {
                Ok(us) => text += &format!("{us:>7.2}"),
                Err(_) => text += "      -",
            }
        }
    }
    // The same with other forms of the kernel, each with its own splits.
    for form in FORMS.iter().filter(|f| f.tiles * 8 >= rows && f.tiles * 8 < rows + 8) {
        let other = Dense::with(gpu, &[*form])?;
        text += &format!(
            "  {}/{}/{}/{} {:.2}",
            form.depth,
            form.fragments,
            form.warps,
            form.resident,
            time(gpu, copies, |i| other.run(gpu, &call(i)))?
        );
    }
    println!("{text}");
    Ok(())
}

/// Median microseconds of one of `copies` launches in a graph.
fn time(gpu: &Gpu, copies: usize, run: impl Fn(usize) -> Result<()>) -> Result<f64> {
    run(0)?;
    gpu.sync()?;
    let graph: Graph = gpu.capture(|| (0..copies).try_for_each(&run))?;
    let (a, b) = (gpu.event()?, gpu.event()?);
    let mut times = Vec::new();
    for i in 0..12 {
        a.record()?;
        graph.launch()?;
        b.record()?;
        let ms = a.elapsed_ms(&b)?;
        if i >= 2 {
            times.push(f64::from(ms) * 1e3 / copies as f64);
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
