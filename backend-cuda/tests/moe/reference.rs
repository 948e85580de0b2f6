//! Routing and experts in f64, and a pass of them on a device.

use bytemuck::Zeroable;
use treeline_cuda::device::{Buffer, Dtype, Gpu, Ptr};
use treeline_cuda::ops::moe::{
    ExpertKind, ExpertShape, ExpertTensor, ExpertWeights, Experts, ExpertsArgs, Router, RouterArgs,
};
use treeline_cuda::ops::rows::{Bucket, RowsPtr};
use treeline_cuda::testing::{Numbers, from_bf16, to_bf16};

pub fn bf16(x: f32) -> f32 {
    from_bf16(&to_bf16(&[x]))[0]
}

/// One projection: as a checkpoint stores it, and its values.
#[derive(Debug, Clone)]
pub struct Tensor {
    pub packed: Vec<u8>,
    pub scales: Vec<u8>,
    pub dense: Vec<u8>,
    pub values: Vec<f64>,
}

impl Tensor {
    /// `nibbles` as q + 8, one a byte; `scales` bf16 values, one for 32 nibbles.
    pub fn int4(nibbles: &[u8], scales: &[f32]) -> Self {
        let packed = nibbles.chunks_exact(2).map(|n| n[0] | n[1] << 4).collect();
        let bits = to_bf16(scales);
        let values =
            nibbles.iter().enumerate().map(|(i, &n)| (f64::from(n) - 8.0) * f64::from(scales[i / 32])).collect();
        Self { packed, scales: bytemuck::cast_slice(&bits).to_vec(), dense: Vec::new(), values }
    }

    fn random(numbers: &mut Numbers, kind: ExpertKind, dtype: Dtype, elements: usize, inputs: usize) -> Self {
        let size = 1.0 / (inputs as f32).sqrt();
        if kind == ExpertKind::Int4 {
            let nibbles: Vec<u8> = (0..elements).map(|_| numbers.below(16) as u8).collect();
            let scales: Vec<f32> = numbers.floats(elements / 32, size / 3.0).into_iter().map(bf16).collect();
            return Self::int4(&nibbles, &scales);
        }
        let mut values = numbers.floats(elements, 2.0 * size);
        let mut dense: Vec<u8> = bytemuck::cast_slice(&values).to_vec();
        if dtype == Dtype::Bf16 {
            values.iter_mut().for_each(|x| *x = bf16(*x));
            dense = bytemuck::cast_slice(&to_bf16(&values)).to_vec();
        }
        let values = values.into_iter().map(f64::from).collect();
        Self { packed: Vec::new(), scales: Vec::new(), dense, values }
    }

    pub fn view(&self) -> ExpertTensor<'_> {
        if self.packed.is_empty() {
            return ExpertTensor::Dense(&self.dense);
        }
        ExpertTensor::Int4 { packed: &self.packed, scales: &self.scales }
    }

    /// Row-major \[out, in\] times x.
    fn times(&self, x: &[f64]) -> Vec<f64> {
        self.values.chunks_exact(x.len()).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
    }
}

/// gate, up, down of each expert.
pub fn random_layer(shape: &ExpertShape, dtype: Dtype, seed: u64) -> Vec<[Tensor; 3]> {
    let mut numbers = Numbers(seed);
    let (h, i) = (shape.hidden, shape.intermediate);
    let mut tensor = |inputs| Tensor::random(&mut numbers, shape.kind, dtype, h * i, inputs);
    (0..shape.experts).map(|_| [tensor(h), tensor(h), tensor(i)]).collect()
}

pub fn load(gpu: &Gpu, experts: &Experts, layer: &[[Tensor; 3]]) -> ExpertWeights {
    let weights = experts.layer(gpu).unwrap();
    for (e, [gate, up, down]) in layer.iter().enumerate() {
        experts.load(gpu, &weights, e, [gate.view(), up.view(), down.view()]).unwrap();
    }
    weights
}

/// Σ weight · down(silu(gate h) · up h), in f64.
pub fn combine(layer: &[[Tensor; 3]], picks: &[(i32, f32)], h: &[f32]) -> Vec<f64> {
    let h: Vec<f64> = h.iter().map(|&x| f64::from(x)).collect();
    let mut out = vec![0.0; h.len()];
    for &(e, weight) in picks.iter().filter(|(e, _)| *e >= 0) {
        let [gate, up, down] = &layer[e as usize];
        let silu = |x: f64| x / (1.0 + (-x).exp());
        let middle: Vec<f64> = gate.times(&h).iter().zip(up.times(&h)).map(|(g, u)| silu(*g) * u).collect();
        out.iter_mut().zip(down.times(&middle)).for_each(|(o, y)| *o += f64::from(weight) * y);
    }
    out
}

/// Experts and weights of one row, in f64, by ascending id.
pub fn route(kind: &treeline_checkpoint::Router, top_k: usize, bias: &[f32], logits: &[f32]) -> Vec<(i32, f64)> {
    let x: Vec<f64> = logits.iter().map(|&x| f64::from(x)).collect();
    let (scores, mut choice, norm, scaling);
    match *kind {
        treeline_checkpoint::Router::Sigmoid { n_group, topk_group, norm_topk, scaling: factor } => {
            scores = x.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect::<Vec<_>>();
            choice = scores.iter().zip(bias).map(|(s, b)| s + f64::from(*b)).collect::<Vec<_>>();
            let size = x.len() / n_group;
            let mut groups: Vec<(f64, usize)> = (0..n_group)
                .map(|g| {
                    let mut best = choice[g * size..(g + 1) * size].to_vec();
                    best.sort_by(|a, b| b.total_cmp(a));
                    (best[0] + best.get(1).copied().unwrap_or(f64::NEG_INFINITY), g)
                })
                .collect();
            groups.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            for &(_, g) in &groups[topk_group..] {
                choice[g * size..(g + 1) * size].fill(f64::NEG_INFINITY);
            }
            (norm, scaling) = (norm_topk, factor);
        }
        treeline_checkpoint::Router::Softmax { norm_topk } => {
            let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = x.iter().map(|x| (x - most).exp()).sum();
            scores = x.iter().map(|x| (x - most).exp() / sum).collect::<Vec<_>>();
            choice = scores.clone();
            (norm, scaling) = (norm_topk, 1.0);
        }
    }
    let mut order: Vec<usize> = (0..x.len()).collect();
    order.sort_by(|&a, &b| choice[b].total_cmp(&choice[a]).then(a.cmp(&b)));
    let mut own = order[..top_k].to_vec();
    own.sort_unstable();
    weigh(&scores, &own, norm, scaling)
}

fn weigh(scores: &[f64], own: &[usize], norm: bool, scaling: f64) -> Vec<(i32, f64)> {
    let sum = if norm { own.iter().map(|&e| scores[e]).sum::<f64>() + 1e-20 } else { 1.0 };
    own.iter().map(|&e| (e as i32, scores[e] / sum * scaling)).collect()
}

/// Buffers of one routing.
#[derive(Debug)]
pub struct Routed {
    pub seq: Buffer<i32>,
    pub ids: Buffer<i32>,
    pub weights: Buffer<f32>,
    pub distinct: Buffer<u32>,
    pub bucket: Bucket,
}

impl Routed {
    pub fn rows(&self) -> RowsPtr {
        RowsPtr { seq: self.seq.ptr(), ..RowsPtr::zeroed() }
    }

    /// Experts and weights, `top_k` a row.
    pub fn picks(&self, gpu: &Gpu) -> Vec<(i32, f32)> {
        gpu.read_all(&self.ids).unwrap().into_iter().zip(gpu.read_all(&self.weights).unwrap()).collect()
    }

    pub fn distinct(&self, gpu: &Gpu) -> u32 {
        gpu.read_all(&self.distinct).unwrap()[0]
    }
}

/// Routes rows of `logits`; rows whose `seq` is negative are padding.
pub fn run_router(
    gpu: &Gpu,
    router: &Router,
    top_k: usize,
    seq: &[i32],
    logits: &[f32],
    bias: Option<&[f32]>,
    forced: Option<&[i32]>,
) -> Routed {
    let rows = seq.len();
    let routed = Routed {
        seq: gpu.upload("seq", seq).unwrap(),
        ids: gpu.alloc("ids", rows * top_k).unwrap(),
        weights: gpu.alloc("weights", rows * top_k).unwrap(),
        distinct: gpu.alloc("distinct", 1).unwrap(),
        bucket: Bucket { rows: rows as u32, seqs: 1 },
    };
    let logits = gpu.upload("logits", logits).unwrap();
    let bias = bias.map(|b| gpu.upload("bias", b).unwrap());
    let forced = forced.map(|f| gpu.upload("forced", f).unwrap());
    let args = RouterArgs {
        rows: routed.rows(),
        logits: logits.ptr(),
        bias: bias.as_ref().map_or(Ptr::NULL, Buffer::ptr),
        forced: forced.as_ref().map_or(Ptr::NULL, Buffer::ptr),
        ids: routed.ids.ptr(),
        weights: routed.weights.ptr(),
        distinct: routed.distinct.ptr(),
    };
    router.run(gpu, routed.bucket, &args).unwrap();
    gpu.sync().unwrap();
    routed
}

/// The experts' output as f32, from poisoned memory.
pub fn run_experts(
    gpu: &Gpu,
    experts: &Experts,
    weights: &ExpertWeights,
    router: &Router,
    routed: &Routed,
    dtype: Dtype,
    h: &[f32],
) -> Vec<f32> {
    let n = h.len();
    let bits = to_bf16(h);
    let bytes: &[u8] = if dtype == Dtype::Bf16 { bytemuck::cast_slice(&bits) } else { bytemuck::cast_slice(h) };
    let h = gpu.upload("h", bytes).unwrap();
    let out = gpu.alloc::<u8>("out", bytes.len()).unwrap();
    gpu.fill(&out, 0xFF).unwrap();
    let args = ExpertsArgs {
        rows: routed.rows(),
        h: h.ptr(),
        ids: routed.ids.ptr(),
        weights: routed.weights.ptr(),
        dispatch: router.dispatch(),
        out: out.ptr(),
    };
    experts.run(gpu, routed.bucket, &args, weights).unwrap();
    match dtype {
        Dtype::F32 => gpu.read(out.ptr(), n).unwrap(),
        Dtype::Bf16 => from_bf16(&gpu.read::<u16>(out.ptr(), n).unwrap()),
    }
}

/// Buffers of a whole pass in bf16, to be recorded.
#[derive(Debug)]
pub struct Pass {
    routed: Routed,
    logits: Buffer<f32>,
    h: Buffer<u16>,
    pub out: Buffer<u16>,
}

impl Pass {
    pub fn new(gpu: &Gpu, shape: &ExpertShape, rows: usize) -> Self {
        let routed = Routed {
            seq: gpu.alloc("seq", rows).unwrap(),
            ids: gpu.alloc("ids", rows * shape.top_k).unwrap(),
            weights: gpu.alloc("weights", rows * shape.top_k).unwrap(),
            distinct: gpu.alloc("distinct", 1).unwrap(),
            bucket: Bucket { rows: rows as u32, seqs: 1 },
        };
        let logits = gpu.alloc("logits", rows * shape.experts).unwrap();
        let (h, out) = (gpu.alloc("h", rows * shape.hidden).unwrap(), gpu.alloc("out", rows * shape.hidden).unwrap());
        Self { routed, logits, h, out }
    }

    /// New inputs: `real` rows, then padding.
    pub fn fill(&self, gpu: &Gpu, shape: &ExpertShape, seed: u64, real: usize) {
        let rows = self.routed.bucket.rows as usize;
        let mut numbers = Numbers(seed);
        let seq: Vec<i32> = (0..rows).map(|r| if r < real { 0 } else { -1 }).collect();
        gpu.copy_in(self.routed.seq.ptr(), &seq).unwrap();
        gpu.copy_in(self.logits.ptr(), &numbers.floats(rows * shape.experts, 3.0)).unwrap();
        gpu.copy_in(self.h.ptr(), &to_bf16(&numbers.floats(rows * shape.hidden, 1.0))).unwrap();
    }

    pub fn run(
        &self,
        gpu: &Gpu,
        router: &Router,
        experts: &Experts,
        weights: &ExpertWeights,
    ) -> treeline_cuda::Result<()> {
        let routed = &self.routed;
        let args = RouterArgs {
            rows: routed.rows(),
            logits: self.logits.ptr(),
            bias: Ptr::NULL,
            forced: Ptr::NULL,
            ids: routed.ids.ptr(),
            weights: routed.weights.ptr(),
            distinct: routed.distinct.ptr(),
        };
        router.run(gpu, routed.bucket, &args)?;
        let args = ExpertsArgs {
            rows: routed.rows(),
            h: self.h.ptr(),
            ids: routed.ids.ptr(),
            weights: routed.weights.ptr(),
            dispatch: router.dispatch(),
            out: self.out.ptr(),
        };
        experts.run(gpu, routed.bucket, &args, weights)
    }
}
