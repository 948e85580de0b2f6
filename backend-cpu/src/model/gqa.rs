//! Grouped-query attention with rotary halves, and per-head norms where the family has them.

use super::attention::{AttentionWork, Pass};
use super::buffer;
use super::norm::Norm;
use crate::kernel::{Packed, attend};
use crate::kv::SeqKv;

/// Weights of one layer's attention.
#[derive(Debug)]
pub(crate) struct GqaLayer {
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub scale: f32,
    /// Queries, keys, values, side by side.
    pub qkv: Packed,
    pub qkv_bias: Option<Vec<f32>>,
    pub q_norm: Option<Norm>,
    pub k_norm: Option<Norm>,
    pub out: Packed,
    pub out_bias: Option<Vec<f32>>,
}

impl GqaLayer {
    /// Adds the attention of the normed rows `h` to the residual stream `x`; writes the rows' keys and values.
    pub fn forward(&self, pass: &Pass<'_>, h: &[f32], kvs: &mut [SeqKv], work: &mut AttentionWork, x: &mut [f32]) {
        let rows = pass.plan.len();
        let (d, heads) = (self.head_dim, self.heads);
        let width = self.qkv.outputs();
        let qkv = buffer(&mut work.down, rows * width);
        self.qkv.apply(h, rows, qkv, false);
        if let Some(bias) = &self.qkv_bias {
            add_bias(qkv, bias);
        }
        for span in &pass.plan.spans {
            for row in span.rows.clone() {
                let qkv = &mut qkv[row * width..(row + 1) * width];
                let (q, kv) = qkv.split_at_mut(heads * d);
                for q in q.chunks_exact_mut(d) {
                    turn(q, self.q_norm.as_ref(), pass, row, &mut work.low);
                    q.iter_mut().for_each(|q| *q *= self.scale);
                }
                let slot = pass.plan.slots[row] as usize;
                self.store(kv, pass, row, slot, &mut kvs[span.seq], &mut work.low);
            }
        }

        let group = heads / self.kv_heads;
        let values = buffer(&mut work.values, rows * heads * d);
        for span in &pass.plan.spans {
            let n = span.rows.len();
            let see = pass.plan.visible(span, pass.window);
            for g in 0..self.kv_heads {
                let (at, part) = (g * group * d, group * d);
                let query = buffer(&mut work.query, n * part);
                for (to, row) in query.chunks_exact_mut(part).zip(span.rows.clone()) {
                    to.copy_from_slice(&qkv[row * width + at..][..part]);
                }
                let mixed = buffer(&mut work.mixed, n * part);
                attend(&mut work.attend, query, group, kvs[span.seq].view(pass.layer, g), &see, mixed);
                for (from, row) in mixed.chunks_exact(part).zip(span.rows.clone()) {
                    values[row * heads * d + at..][..part].copy_from_slice(from);
                }
            }
        }
        self.out.apply(values, rows, x, true);
        if let Some(bias) = &self.out_bias {
            add_bias(x, bias);
        }
    }

    /// Norms, rotates and stores the keys and values of one row; `kv` holds its keys, then its values.
    pub fn store(
        &self,
        kv: &mut [f32],
        pass: &Pass<'_>,
        row: usize,
        slot: usize,
        cache: &mut SeqKv,
        scratch: &mut Vec<f32>,
    ) {
        let d = self.head_dim;
        let (keys, values) = kv.split_at_mut(self.kv_heads * d);
        for (head, (k, v)) in keys.chunks_exact_mut(d).zip(values.chunks_exact(d)).enumerate() {
            turn(k, self.k_norm.as_ref(), pass, row, scratch);
            cache.write(pass.layer, head, slot, k, v);
        }
    }
}

/// Norm (where there is one), then rotation, of one head.
fn turn(x: &mut [f32], norm: Option<&Norm>, pass: &Pass<'_>, row: usize, scratch: &mut Vec<f32>) {
    if let Some(norm) = norm {
        let copy = buffer(scratch, x.len());
        copy.copy_from_slice(x);
        norm.apply(copy, x);
    }
    pass.rotary.rotate(x, row, pass.angles);
}

fn add_bias(x: &mut [f32], bias: &[f32]) {
    for x in x.chunks_exact_mut(bias.len()) {
        for (x, b) in x.iter_mut().zip(bias) {
            *x += b;
        }
    }
}
