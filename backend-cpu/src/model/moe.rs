//! Routed and shared experts. Rows are grouped by expert, so an expert's weights are read once per pass; each row sums its
//! experts in ascending order of their ids, whatever else is in the pass.

use super::buffer;
use super::mlp::{Mlp, MlpWork};
use crate::kernel::{Packed, softmax};
use crate::seeded::{Seeded, seeded};
use treeline_checkpoint::Router;

/// Weights of one mixture.
#[derive(Debug)]
pub(crate) struct MoeLayer {
    pub router: Router,
    pub top_k: usize,
    pub gate: Packed,
    /// Selection bias of a sigmoid router.
    pub bias: Vec<f32>,
    pub experts: Vec<Mlp>,
    pub shared: Option<Mlp>,
}

/// Working memory of one pass.
#[derive(Debug, Default)]
pub(crate) struct MoeWork {
    logits: Vec<f32>,
    choice: Vec<f32>,
    /// `(expert, weight)` of each row, `top_k` a row, by ascending expert.
    picks: Vec<(u32, f32)>,
    /// Rows of each expert in `order`: where they begin, then one past the end.
    begins: Vec<usize>,
    /// Where each pick's output stands.
    places: Vec<usize>,
    gathered: Vec<f32>,
    outputs: Vec<f32>,
    mlp: MlpWork,
}

impl MoeLayer {
    /// Adds the mixture's output for the normed rows `h` to `x`; returns how many distinct routed experts the rows touch.
    pub fn forward(&self, h: &[f32], rows: usize, work: &mut MoeWork, x: &mut [f32]) -> u32 {
        let width = self.gate.inputs();
        let count = self.experts.len();
        let logits = buffer(&mut work.logits, rows * count);
        self.gate.apply(h, rows, logits, false);
        work.picks.clear();
        for logits in logits.chunks_exact_mut(count) {
            pick(&self.router, self.top_k, &self.bias, logits, &mut work.choice, &mut work.picks);
        }

        // Counting sort of the picks by expert; rows stay in order within one expert.
        work.begins.clear();
        work.begins.resize(count + 1, 0);
        for &(e, _) in &work.picks {
            work.begins[e as usize + 1] += 1;
        }
        for e in 0..count {
            work.begins[e + 1] += work.begins[e];
        }
        let mut next = work.begins.clone();
        work.places.clear();
        let gathered = buffer(&mut work.gathered, work.picks.len() * width);
        for (i, &(e, _)) in work.picks.iter().enumerate() {
            let place = next[e as usize];
            next[e as usize] += 1;
            work.places.push(place);
            let row = i / self.top_k;
            gathered[place * width..(place + 1) * width].copy_from_slice(&h[row * width..(row + 1) * width]);
        }

        let outputs = buffer(&mut work.outputs, work.picks.len() * width);
        let mut distinct = 0;
        for (e, expert) in self.experts.iter().enumerate() {
            let (a, b) = (work.begins[e], work.begins[e + 1]);
            if a < b {
                distinct += 1;
                let out = &mut outputs[a * width..b * width];
                expert.forward(&gathered[a * width..b * width], b - a, &mut work.mlp, out, false);
            }
        }
        for (row, x) in x[..rows * width].chunks_exact_mut(width).enumerate() {
            for i in row * self.top_k..(row + 1) * self.top_k {
                let (weight, from) = (work.picks[i].1, &outputs[work.places[i] * width..][..width]);
                for (x, &y) in x.iter_mut().zip(from) {
                    *x += weight * y;
                }
            }
        }
        if let Some(shared) = &self.shared {
            shared.forward(h, rows, &mut work.mlp, x, true);
        }
        if seeded(Seeded::PaddingRouted) { distinct + 1 } else { distinct }
    }
}

/// Chooses the experts of one row; equal scores go to the smaller id. Unusable (NaN) scores still give `top_k` distinct
/// experts, whose outputs are NaN for this row only.
fn pick(
    router: &Router,
    top_k: usize,
    bias: &[f32],
    logits: &mut [f32],
    choice: &mut Vec<f32>,
    picks: &mut Vec<(u32, f32)>,
) {
    let from = picks.len();
    choice.clear();
    let (norm, scaling) = match *router {
        Router::Sigmoid { n_group, topk_group, norm_topk, scaling } => {
            for x in logits.iter_mut() {
                *x = 1.0 / (1.0 + (-*x).exp());
            }
            choice.extend(logits.iter().zip(bias).map(|(s, b)| s + b));
            if n_group > 1 {
                keep_groups(choice, n_group, topk_group);
            }
            (norm_topk, scaling as f32)
        }
        Router::Softmax { norm_topk } => {
            let scale = softmax(logits);
            logits.iter_mut().for_each(|x| *x *= scale);
            choice.extend_from_slice(logits);
            (norm_topk, 1.0)
        }
    };
    for _ in 0..top_k {
        // −∞ marks what is taken; NaN counts as −∞ here, so it is taken last but never twice.
        let mut best = (f32::NEG_INFINITY, None);
        for (e, &s) in choice.iter().enumerate() {
            if s > best.0 {
                best = (s, Some(e));
            }
        }
        let taken = |e: &usize| picks[from..].iter().any(|&(p, _)| p as usize == *e);
        let e = best.1.unwrap_or_else(|| (0..choice.len()).find(|e| !taken(e)).unwrap_or(0));
        choice[e] = f32::NEG_INFINITY;
        picks.push((e as u32, logits[e]));
    }
    let own = &mut picks[from..];
    own.sort_unstable_by_key(|&(e, _)| e);
    let sum = if norm { own.iter().map(|&(_, w)| w).sum::<f32>() + 1e-20 } else { 1.0 };
    for (_, w) in own {
        *w = *w / sum * scaling;
    }
}

/// Only the `keep` groups with the largest sums of their two best scores stay.
fn keep_groups(choice: &mut [f32], groups: usize, keep: usize) {
    let size = choice.len() / groups;
    let mut sums: Vec<(f32, usize)> = choice
        .chunks_exact(size)
        .enumerate()
        .map(|(g, scores)| {
            let (mut a, mut b) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
            for &s in scores {
                if s > a {
                    (a, b) = (s, a);
                } else if s > b {
                    b = s;
                }
            }
            (a + b, g)
        })
        .collect();
    sums.sort_unstable_by(|x, y| y.0.total_cmp(&x.0).then(x.1.cmp(&y.1)));
    for &(_, g) in &sums[keep.min(groups)..] {
        choice[g * size..(g + 1) * size].fill(f32::NEG_INFINITY);
    }
}
