//! Matrix products against f64, on the emulator and, where there is one, the GPU.

#![allow(clippy::print_stderr, reason = "a test says what it skipped and what it found")]

use treeline_cuda::device::{Buffer, Dtype, Gemm, Gpu, Matrix, Ptr};
use treeline_cuda::testing::{Numbers, from_bf16, gpus, relative_error, to_bf16};

/// A matrix on the device and what it holds.
struct Held {
    floats: Option<Buffer<f32>>,
    halves: Option<Buffer<u16>>,
    values: Vec<f32>,
}

impl Held {
    fn new(gpu: &Gpu, dtype: Dtype, values: &[f32]) -> Self {
        match dtype {
            Dtype::F32 => {
                Self { floats: Some(gpu.upload("f32", values).unwrap()), halves: None, values: values.to_vec() }
            }
            Dtype::Bf16 => {
                let bits = to_bf16(values);
                let values = from_bf16(&bits);
                Self { floats: None, halves: Some(gpu.upload("bf16", &bits).unwrap()), values }
            }
        }
    }

    fn at(&self) -> Ptr {
        self.floats.as_ref().map_or_else(|| self.halves.as_ref().unwrap().ptr(), Buffer::ptr)
    }

    fn read(&self, gpu: &Gpu) -> Vec<f32> {
        match &self.floats {
            Some(floats) => gpu.read_all(floats).unwrap(),
            None => from_bf16(&gpu.read_all(self.halves.as_ref().unwrap()).unwrap()),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Case {
    rows: usize,
    outputs: usize,
    inputs: usize,
    batch: usize,
    /// Elements between rows beyond the columns.
    gaps: [usize; 3],
    /// Whether all problems share the weight.
    shared: bool,
    add: bool,
}

const PLAIN: Case = Case { rows: 1, outputs: 8, inputs: 8, batch: 1, gaps: [0; 3], shared: false, add: false };

const CASES: &[Case] = &[
    PLAIN,
    Case { rows: 17, outputs: 96, inputs: 128, ..PLAIN },
    Case { rows: 3, outputs: 33, inputs: 65, ..PLAIN },
    Case { rows: 65, outputs: 1, inputs: 7, ..PLAIN },
    Case { rows: 9, outputs: 40, inputs: 32, gaps: [8, 16, 24], ..PLAIN },
    Case { rows: 5, outputs: 13, inputs: 11, gaps: [3, 1, 2], add: true, ..PLAIN },
    Case { rows: 8, outputs: 64, inputs: 512, add: true, ..PLAIN },
    Case { rows: 6, outputs: 24, inputs: 16, batch: 4, ..PLAIN },
    Case { rows: 4, outputs: 24, inputs: 16, batch: 3, gaps: [8, 0, 8], shared: true, ..PLAIN },
    Case { rows: 2, outputs: 31, inputs: 29, batch: 5, add: true, ..PLAIN },
    Case { rows: 1, outputs: 256, inputs: 2048, ..PLAIN },
];

/// Runs one case and returns the error against f64; what lies between the rows of y must stay.
fn run(gpu: &Gpu, case: Case, inputs: Dtype, output: Dtype, seed: u64) -> f64 {
    let Case { rows, outputs, inputs: k, batch, gaps, shared, add } = case;
    let strides = [k + gaps[0], k + gaps[1], outputs + gaps[2]];
    let weights = if shared { 1 } else { batch };
    let sizes = [batch * rows * strides[0], weights * outputs * strides[1], batch * rows * strides[2]];
    let mut numbers = Numbers(seed);
    let x = Held::new(gpu, inputs, &numbers.floats(sizes[0], 1.0));
    let w = Held::new(gpu, inputs, &numbers.floats(sizes[1], 1.0));
    let mut before = numbers.floats(sizes[2], 4.0);
    if !add {
        // A product that reads y without being asked to shows.
        let row = |i: usize| i % strides[2] < outputs;
        before.iter_mut().enumerate().filter(|(i, _)| row(*i)).for_each(|(_, v)| *v = f32::NAN);
    }
    let y = Held::new(gpu, output, &before);
    let matrix = |h: &Held, i: usize, n: usize, dtype| Matrix {
        at: h.at(),
        stride: strides[i],
        batch_stride: if i == 1 && shared { 0 } else { n * strides[i] },
        dtype,
    };
    let gemm = Gemm {
        rows,
        outputs,
        inputs: k,
        batch,
        x: matrix(&x, 0, rows, inputs),
        w: matrix(&w, 1, outputs, inputs),
        y: matrix(&y, 2, rows, output),
        add,
    };
    gpu.gemm(&gemm).unwrap();
    let all = y.read(gpu);
    let (mut got, mut want) = (Vec::new(), Vec::new());
    for b in 0..batch {
        for r in 0..rows {
            let line = (b * rows + r) * strides[2];
            for o in 0..outputs {
                let (at, wt) = ((b * rows + r) * strides[0], ((b % weights) * outputs + o) * strides[1]);
                let sum: f64 = (0..k).map(|i| f64::from(x.values[at + i]) * f64::from(w.values[wt + i])).sum();
                let old = if add { f64::from(y.values[line + o]) } else { 0.0 };
                want.push((old + sum) as f32);
                got.push(all[line + o]);
            }
            let gap = line + outputs..line + strides[2];
            assert_eq!(all[gap.clone()], y.values[gap], "{case:?} writes between rows");
        }
    }
    relative_error(&got, &want)
}

#[test]
fn products_agree_with_f64() {
    for gpu in gpus() {
        for (inputs, output, most) in
            [(Dtype::F32, Dtype::F32, 1e-6), (Dtype::Bf16, Dtype::F32, 1e-5), (Dtype::Bf16, Dtype::Bf16, 4e-3)]
        {
            let mut worst: f64 = 0.0;
            for (i, case) in CASES.iter().enumerate() {
                let error = run(&gpu, *case, inputs, output, 100 + i as u64);
                assert!(error <= most, "{}: {inputs:?} to {output:?}, {case:?}: {error:e}", gpu.info().name);
                worst = worst.max(error);
            }
            eprintln!("{}: {inputs:?} to {output:?}: worst error {worst:e}", gpu.info().name);
        }
    }
}

#[test]
fn a_product_of_nothing_and_one_that_does_not_fit() {
    for gpu in gpus() {
        let at = gpu.zeroed::<f32>("memory", 64).unwrap().ptr();
        let matrix = Matrix::new(at, 4, Dtype::F32);
        let gemm = Gemm { rows: 0, outputs: 4, inputs: 4, batch: 1, x: matrix, w: matrix, y: matrix, add: false };
        gpu.gemm(&gemm).unwrap();
        let mixed = Gemm { rows: 2, x: Matrix { dtype: Dtype::Bf16, ..matrix }, ..gemm };
        assert!(gpu.gemm(&mixed).is_err(), "x and w of two types");
        let narrow = Gemm { rows: 2, x: Matrix { stride: 3, ..matrix }, ..gemm };
        assert!(gpu.gemm(&narrow).is_err(), "rows that overlap");
    }
}

#[test]
fn a_shape_gives_the_same_bits_eager_and_in_a_graph() {
    for gpu in gpus() {
        for (rows, outputs, inputs) in [(1usize, 64usize, 256usize), (17, 48, 192), (65, 33, 31)] {
            let mut numbers = Numbers(rows as u64);
            let x = gpu.upload("x", &to_bf16(&numbers.floats(rows * inputs, 1.0))).unwrap();
            let w = gpu.upload("w", &to_bf16(&numbers.floats(outputs * inputs, 1.0))).unwrap();
            let y = gpu.zeroed::<f32>("y", rows * outputs).unwrap();
            let gemm = Gemm {
                rows,
                outputs,
                inputs,
                batch: 1,
                x: Matrix::new(x.ptr(), inputs, Dtype::Bf16),
                w: Matrix::new(w.ptr(), inputs, Dtype::Bf16),
                y: Matrix::new(y.ptr(), outputs, Dtype::F32),
                add: false,
            };
            gpu.gemm(&gemm).unwrap();
            let first = gpu.read_all(&y).unwrap();
            let graph = gpu.capture(|| gpu.gemm(&gemm)).unwrap();
            for _ in 0..3 {
                gpu.fill(&y, 0xFF).unwrap();
                graph.launch().unwrap();
                assert_eq!(gpu.read_all(&y).unwrap(), first);
                gpu.fill(&y, 0xFF).unwrap();
                gpu.gemm(&gemm).unwrap();
                assert_eq!(gpu.read_all(&y).unwrap(), first);
            }
        }
    }
}
