//! Latent attention in f64, and a pass on a device to compare it with.

use treeline_cuda::device::{Dtype, Gpu, Ptr};
use treeline_cuda::ops::mla_attend::{MlaAttend, MlaCall, MlaForm};
use treeline_cuda::ops::rows::{Bucket, RowPlan, Sight};
use treeline_cuda::testing::{Numbers, from_bf16, to_bf16};

#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub heads: usize,
    pub lora: usize,
    pub rope: usize,
}

impl Shape {
    pub fn dim(self) -> usize {
        self.lora + self.rope
    }
}

/// One sequence of a pass: its past and its tree.
#[derive(Debug, Clone)]
pub struct Sequence {
    pub start: u32,
    pub parents: Vec<u32>,
}

impl Sequence {
    pub fn new(start: u32, parents: Vec<u32>) -> Self {
        Self { start, parents }
    }
}

/// A random tree of `n` rows, root first.
pub fn tree(n: usize, seed: u64) -> Vec<u32> {
    let mut numbers = Numbers(seed ^ 0x7ee5);
    (0..n as u64).map(|i| if numbers.below(3) == 0 { numbers.below(i) } else { i.saturating_sub(1) } as u32).collect()
}

/// The forms that serve a shape.
pub fn forms(gpu: &Gpu, dtype: Dtype, shape: Shape) -> Vec<MlaForm> {
    let mut all = vec![MlaForm::Any];
    all.extend(MlaForm::tiles(gpu, dtype, shape.lora, shape.rope));
    all
}

pub fn op(gpu: &Gpu, form: MlaForm, dtype: Dtype, shape: Shape, bucket: Bucket) -> MlaAttend {
    op_with(gpu, form, dtype, shape, bucket, gpu.info().sms)
}

pub fn op_with(gpu: &Gpu, form: MlaForm, dtype: Dtype, shape: Shape, bucket: Bucket, blocks: u32) -> MlaAttend {
    let of = (shape.heads, shape.lora, shape.rope);
    MlaAttend::with_form(gpu, form, dtype, of, bucket, 1 << 17, blocks).unwrap()
}

/// Rows between the slots of two sequences: more than any pass of these tests needs.
const STRIDE: u32 = 1400;
const SLOTS: usize = 6;
const MOST_ROWS: usize = 300;

/// A pass with its own buffers.
pub struct Pass {
    shape: Shape,
    dtype: Dtype,
    sequences: Vec<Sequence>,
    plan: RowPlan,
    q: Vec<f32>,
    cache: Vec<f32>,
    q_at: Ptr,
    cache_at: Ptr,
    out_at: Ptr,
    shift: u32,
    all: bool,
    _buffers: Vec<treeline_cuda::device::Buffer<u16>>,
}

impl Pass {
    pub fn new(gpu: &Gpu, dtype: Dtype, shape: Shape, sequences: &[Sequence], seed: u64) -> Self {
        let mut numbers = Numbers(seed);
        let sink = (SLOTS as u32) * STRIDE;
        let mut pass = Self {
            shape,
            dtype,
            sequences: sequences.to_vec(),
            plan: RowPlan::new(gpu, MOST_ROWS, 8, sink).unwrap(),
            q: numbers.floats(MOST_ROWS * shape.heads * shape.dim(), 4.0 / (shape.dim() as f32).sqrt()),
            cache: numbers.floats((sink as usize + 1) * shape.dim(), 1.0),
            q_at: Ptr::NULL,
            cache_at: Ptr::NULL,
            out_at: Ptr::NULL,
            shift: 0,
            all: false,
            _buffers: Vec::new(),
        };
        if dtype == Dtype::Bf16 {
            pass.q = from_bf16(&to_bf16(&pass.q));
            pass.cache = from_bf16(&to_bf16(&pass.cache));
        }
        let outputs = MOST_ROWS * shape.heads * shape.lora;
        let halves = dtype.bytes() / 2;
        let buffers = [pass.q.len(), pass.cache.len(), outputs].map(|n| gpu.alloc("test", n * halves).unwrap());
        [pass.q_at, pass.cache_at, pass.out_at] = [0, 1, 2].map(|i: usize| buffers[i].ptr());
        pass._buffers = buffers.into();
        pass.write(gpu, pass.q_at, &pass.q);
        pass.write(gpu, pass.cache_at, &pass.cache);
        pass
    }

    pub fn rows(&self) -> usize {
        self.sequences.iter().map(|s| s.parents.len()).sum()
    }

    pub fn replace(&mut self, sequences: &[Sequence]) {
        self.sequences = sequences.to_vec();
    }

    /// Lets every row see every row of its sequence.
    pub fn see_all(&mut self) {
        self.all = true;
    }

    /// Claims that the cache lies `by` rows further on.
    pub fn shift(&mut self, by: u32) {
        self.shift = by;
    }

    pub fn push(&mut self, gpu: &Gpu, bucket: Bucket) {
        self.plan.clear();
        for (slot, s) in self.sequences.iter().enumerate() {
            let tokens = vec![7; s.parents.len()];
            let sight = if self.all { Sight::All } else { Sight::Tree(&s.parents) };
            self.plan.add(self.shift + slot as u32 * STRIDE, s.start, &tokens, sight).unwrap();
        }
        self.plan.push(gpu, bucket).unwrap();
        // Outputs are poisoned before every run.
        let width = self.shape.heads * self.shape.lora;
        self.write(gpu, self.out_at, &vec![f32::NAN; bucket.rows as usize * width]);
    }

    pub fn call(&self, window: u32) -> MlaCall {
        MlaCall { rows: self.plan.ptrs(), q: self.q_at, cache: self.cache_at, out: self.out_at, window }
    }

    pub fn output(&self, gpu: &Gpu, bucket: Bucket) -> Vec<f32> {
        self.read(gpu, self.out_at, bucket.rows as usize * self.shape.heads * self.shape.lora)
    }

    /// The output of one run, padding included.
    pub fn run(&mut self, gpu: &Gpu, op: &MlaAttend, bucket: Bucket, window: u32) -> Vec<f32> {
        self.push(gpu, bucket);
        op.run(gpu, bucket, &self.call(window)).unwrap();
        self.output(gpu, bucket)
    }

    /// Overwrites the cache row of row `j` of the pass in `slot`; [`Pass::restore`] undoes it.
    pub fn poison_row(&self, gpu: &Gpu, slot: usize, j: usize, with: f32) {
        self.poison_past(gpu, slot, self.sequences[slot].start as usize + j, with);
    }

    /// Overwrites the cache row of position `at` in `slot`.
    pub fn poison_past(&self, gpu: &Gpu, slot: usize, at: usize, with: f32) {
        let dim = self.shape.dim();
        let row = slot * STRIDE as usize + at;
        self.write(gpu, self.cache_at.offset(row * dim * self.dtype.bytes()), &vec![with; dim]);
    }

    /// Writes the cache again.
    pub fn restore(&self, gpu: &Gpu) {
        self.write(gpu, self.cache_at, &self.cache);
    }

    fn write(&self, gpu: &Gpu, to: Ptr, values: &[f32]) {
        match self.dtype {
            Dtype::F32 => gpu.copy_in(to, values).unwrap(),
            Dtype::Bf16 => gpu.copy_in(to, &to_bf16(values)).unwrap(),
        }
    }

    fn read(&self, gpu: &Gpu, from: Ptr, len: usize) -> Vec<f32> {
        match self.dtype {
            Dtype::F32 => gpu.read(from, len).unwrap(),
            Dtype::Bf16 => from_bf16(&gpu.read::<u16>(from, len).unwrap()),
        }
    }

    /// What the rows should be, without padding.
    pub fn reference(&self, window: u32) -> Vec<f32> {
        let Shape { heads, lora, .. } = self.shape;
        let dim = self.shape.dim();
        let (mut out, mut row) = (Vec::new(), 0);
        for (slot, s) in self.sequences.iter().enumerate() {
            let start = s.start as usize;
            let depth = |mut j: usize| {
                let mut depth = 0;
                while j > 0 {
                    (j, depth) = (s.parents[j] as usize, depth + 1);
                }
                depth
            };
            for j in 0..s.parents.len() {
                let mut seen: Vec<(usize, usize)> = (0..start).map(|k| (k, k)).collect();
                let mut at = j;
                loop {
                    seen.push((start + at, start + depth(at)));
                    if at == 0 {
                        break;
                    }
                    at = s.parents[at] as usize;
                }
                let own = start + depth(j);
                seen.retain(|&(_, position)| window == 0 || position + window as usize > own);
                for h in 0..heads {
                    let q = &self.q[(row * heads + h) * dim..][..dim];
                    let key = |k: usize| &self.cache[(slot * STRIDE as usize + k) * dim..][..dim];
                    let scores: Vec<f64> = seen
                        .iter()
                        .map(|&(k, _)| q.iter().zip(key(k)).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum())
                        .collect();
                    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let weights: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
                    let sum: f64 = weights.iter().sum();
                    let mut acc = vec![0.0; lora];
                    for (&(k, _), w) in seen.iter().zip(&weights) {
                        acc.iter_mut().zip(key(k)).for_each(|(a, v)| *a += w / sum * f64::from(*v));
                    }
                    out.extend(acc.iter().map(|a| *a as f32));
                }
                row += 1;
            }
        }
        out
    }
}
