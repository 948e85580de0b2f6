//! Attention of a ragged pass in f64, and the same pass on a device.

use crate::typed::{download, poisoned, round, upload};
use treeline_cuda::device::{Buffer, Dtype, Gpu};
use treeline_cuda::ops::gqa_attend::{GqaAttend, GqaAttendCall, GqaForm, GqaShape};
use treeline_cuda::ops::rows::{Bucket, RowPlan, Sight};
use treeline_cuda::testing::Numbers;

/// What the rows of one sequence see of each other.
#[derive(Debug, Clone)]
pub enum Kind {
    Tree(Vec<u32>),
    Causal(usize),
    Block(usize),
}

/// One sequence of a pass.
#[derive(Debug, Clone)]
pub struct Seq {
    pub start: u32,
    pub kind: Kind,
}

impl Seq {
    pub fn rows(&self) -> usize {
        match &self.kind {
            Kind::Tree(parents) => parents.len(),
            Kind::Causal(n) | Kind::Block(n) => *n,
        }
    }

    /// Position of row `j`, and the rows it sees.
    pub fn row(&self, j: usize) -> (u32, Vec<usize>) {
        match &self.kind {
            Kind::Causal(_) => (self.start + j as u32, (0..=j).collect()),
            Kind::Block(n) => (self.start + j as u32, (0..*n).collect()),
            Kind::Tree(parents) => {
                let mut path = vec![j];
                while let Some(&at) = path.last().filter(|at| **at > 0) {
                    path.push(parents[at] as usize);
                }
                path.reverse();
                (self.start + path.len() as u32 - 1, path)
            }
        }
    }
}

/// A random tree of `n` rows, root first.
pub fn tree(numbers: &mut Numbers, n: usize) -> Kind {
    Kind::Tree((0..n).map(|i| numbers.below(i.max(1) as u64) as u32).collect())
}

/// A pass with its inputs, already rounded to the type of the activations.
#[derive(Debug, Clone)]
pub struct Pass {
    pub shape: GqaShape,
    pub dtype: Dtype,
    pub seqs: Vec<Seq>,
    /// Cache rows of a sequence.
    pub room: usize,
    pub q: Vec<f32>,
    pub k: Vec<f32>,
    pub v: Vec<f32>,
    pub window: u32,
    pub window_tail: bool,
}

impl Pass {
    /// Random inputs; cache rows that no row may see are NaN.
    pub fn new(seed: u64, dtype: Dtype, shape: GqaShape, seqs: &[Seq]) -> Self {
        let mut numbers = Numbers(seed);
        let rows: usize = seqs.iter().map(Seq::rows).sum();
        let room = seqs.iter().map(|s| s.start as usize + s.rows()).max().unwrap_or(0) + 3;
        let width = shape.kv_heads * shape.head_dim;
        let mut cache = |scale: f32| {
            let mut all = vec![f32::NAN; (seqs.len() * room + 1) * width];
            for (s, seq) in seqs.iter().enumerate() {
                let used = (seq.start as usize + seq.rows()) * width;
                all[s * room * width..][..used].copy_from_slice(&round(dtype, &numbers.floats(used, scale)));
            }
            all
        };
        let (k, v) = (cache(2.0), cache(1.0));
        let q = round(dtype, &numbers.floats(rows * shape.heads * shape.head_dim, 0.5));
        Self { shape, dtype, seqs: seqs.to_vec(), room, q, k, v, window: 0, window_tail: true }
    }

    pub fn rows(&self) -> usize {
        self.seqs.iter().map(Seq::rows).sum()
    }

    pub fn windowed(mut self, window: u32, tail: bool) -> Self {
        (self.window, self.window_tail) = (window, tail);
        self
    }

    /// The smallest bucket, with some padding.
    pub fn bucket(&self, more_rows: u32, more_seqs: u32) -> Bucket {
        Bucket { rows: self.rows() as u32 + more_rows, seqs: self.seqs.len() as u32 + more_seqs }
    }

    /// In f64.
    pub fn reference(&self) -> Vec<f32> {
        let GqaShape { heads, kv_heads, head_dim: d } = self.shape;
        let mut out = Vec::new();
        for (s, seq) in self.seqs.iter().enumerate() {
            for j in 0..seq.rows() {
                let (position, own) = seq.row(j);
                let near = |p: u32| self.window == 0 || p + self.window > position;
                let past = (0..seq.start).filter(|p| near(*p)).map(|p| p as usize);
                let own = own.into_iter().filter(|i| !self.window_tail || near(seq.row(*i).0));
                let seen: Vec<usize> = past.chain(own.map(|i| seq.start as usize + i)).collect();
                for h in 0..heads {
                    let q = &self.q[(out.len() / d) * d..][..d];
                    let at = |slot: &usize| ((s * self.room + slot) * kv_heads + h / (heads / kv_heads)) * d;
                    let dot = |k: &[f32]| -> f64 { q.iter().zip(k).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum() };
                    let scores: Vec<f64> = seen.iter().map(|slot| dot(&self.k[at(slot)..][..d])).collect();
                    let most = scores.iter().fold(f64::NEG_INFINITY, |a, b| a.max(*b));
                    let sum: f64 = scores.iter().map(|x| (x - most).exp()).sum();
                    let mut mixed = vec![0.0f64; d];
                    for (slot, score) in seen.iter().zip(&scores) {
                        let weight = (score - most).exp() / sum;
                        let value = &self.v[at(slot)..][..d];
                        mixed.iter_mut().zip(value).for_each(|(m, v)| *m += weight * f64::from(*v));
                    }
                    out.extend(mixed.iter().map(|m| *m as f32));
                }
            }
        }
        out
    }

    /// On a device: a kernel with its buffers. `form` with as many multiprocessors as `sms` says.
    pub fn on<'a>(&'a self, gpu: &'a Gpu, form: GqaForm, sms: u32, bucket: Bucket) -> Device<'a> {
        let attend = GqaAttend::with_form(gpu, form, self.dtype, self.shape, bucket, sms).unwrap();
        let mut plan = RowPlan::new(gpu, bucket.rows as usize, bucket.seqs as usize, self.sink()).unwrap();
        self.plan(&mut plan);
        plan.push(gpu, bucket).unwrap();
        let mut q = self.q.clone();
        q.resize(bucket.rows as usize * self.shape.heads * self.shape.head_dim, f32::NAN);
        let [q, k, v] = [&q, &self.k, &self.v].map(|x| upload(gpu, self.dtype, x));
        let bytes = bucket.rows as usize * self.shape.heads * self.shape.head_dim * self.dtype.bytes();
        let out = poisoned(gpu, bytes);
        Device { gpu, pass: self, attend, plan, q, k, v, out, bucket }
    }

    pub fn sink(&self) -> u32 {
        (self.seqs.len() * self.room) as u32
    }

    /// Adds the sequences to an empty plan.
    pub fn plan(&self, plan: &mut RowPlan) {
        for (s, seq) in self.seqs.iter().enumerate() {
            let sight = match &seq.kind {
                Kind::Tree(parents) => Sight::Tree(parents),
                Kind::Causal(_) => Sight::Causal,
                Kind::Block(_) => Sight::All,
            };
            plan.add((s * self.room) as u32, seq.start, &vec![0; seq.rows()], sight).unwrap();
        }
    }
}

/// A pass in device memory.
#[derive(Debug)]
pub struct Device<'a> {
    pub gpu: &'a Gpu,
    pub pass: &'a Pass,
    pub attend: GqaAttend,
    pub plan: RowPlan,
    pub q: Buffer<u8>,
    pub k: Buffer<u8>,
    pub v: Buffer<u8>,
    pub out: Buffer<u8>,
    pub bucket: Bucket,
}

impl Device<'_> {
    pub fn call(&self) -> GqaAttendCall {
        GqaAttendCall {
            rows: self.plan.ptrs(),
            q: self.q.ptr(),
            k_cache: self.k.ptr(),
            v_cache: self.v.ptr(),
            out: self.out.ptr(),
            window: self.pass.window,
            window_tail: self.pass.window_tail,
        }
    }

    /// Runs with a tile (none: the kernel's choice) into poisoned memory; the padded rows have to be zero.
    pub fn run(&self, height: Option<usize>) -> Vec<f32> {
        self.gpu.fill(&self.out, 0xFF).unwrap();
        match height {
            Some(height) => self.attend.run_with(self.gpu, self.bucket, &self.call(), height).unwrap(),
            None => self.attend.run(self.gpu, self.bucket, &self.call()).unwrap(),
        }
        self.result()
    }

    /// What `out` holds, without the padded rows.
    pub fn result(&self) -> Vec<f32> {
        let mut out = download(self.gpu, self.pass.dtype, self.out.ptr(), self.out.len());
        let padding = out.split_off(self.pass.q.len());
        assert!(padding.iter().all(|x| x.to_bits() == 0), "padded rows are zero");
        out
    }
}
