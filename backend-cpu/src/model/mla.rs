//! Multi-head latent attention, absorbed: queries are taken into the latent space, so that the cache holds one latent and
//! one rotary key per token, shared by all heads (DeepSeek-V2, arXiv 2405.04434).

use super::attention::{AttentionWork, Pass};
use super::buffer;
use super::norm::Norm;
use crate::kernel::{Packed, attend};
use crate::kv::SeqKv;

/// Epsilon of the norms over the two latents: the published models fix it, whatever `rms_norm_eps` says.
pub(crate) const LATENT_EPS: f32 = 1e-6;

/// Weights of one layer's attention.
#[derive(Debug)]
pub(crate) struct MlaLayer {
    pub heads: usize,
    pub nope: usize,
    pub rope: usize,
    pub v: usize,
    pub kv_lora: usize,
    pub scale: f32,
    pub query: Query,
    /// Latent and rotary key, behind the query's down-projection where there is one (they read the same input).
    pub down: Packed,
    pub kv_norm: Norm,
    /// Per head: query without position → latent.
    pub absorb: Vec<Packed>,
    /// Per head: latent → value.
    pub expand: Vec<Packed>,
    pub out: Packed,
}

/// How queries are made.
#[derive(Debug)]
pub(crate) enum Query {
    /// Down-projection (the first `rank` outputs of [`MlaLayer::down`]), norm, up-projection.
    Compressed { rank: usize, norm: Norm, up: Packed },
    /// One projection.
    Full(Packed),
}

impl MlaLayer {
    /// Adds the attention of the normed rows `h` to the residual stream `x`; writes the rows' keys and values.
    pub fn forward(&self, pass: &Pass<'_>, h: &[f32], kvs: &mut [SeqKv], work: &mut AttentionWork, x: &mut [f32]) {
        let rows = pass.plan.len();
        let (heads, head) = (self.heads, self.nope + self.rope);
        let latent = self.kv_lora + self.rope;
        let width = self.down.outputs();
        let down = buffer(&mut work.down, rows * width);
        self.down.apply(h, rows, down, false);

        let q = buffer(&mut work.q, rows * heads * head);
        let kv_at = match &self.query {
            Query::Full(proj) => {
                proj.apply(h, rows, q, false);
                0
            }
            Query::Compressed { rank, norm, up } => {
                let low = buffer(&mut work.low, rows * rank);
                for (low, down) in low.chunks_exact_mut(*rank).zip(down.chunks_exact(width)) {
                    norm.apply(&down[..*rank], low);
                }
                up.apply(low, rows, q, false);
                *rank
            }
        };
        for (row, q) in q.chunks_exact_mut(heads * head).enumerate() {
            for q in q.chunks_exact_mut(head) {
                pass.rotary.rotate(&mut q[self.nope..], row, pass.angles);
            }
            q.iter_mut().for_each(|q| *q *= self.scale);
        }

        let absorbed = buffer(&mut work.query, rows * heads * latent);
        for (n, absorb) in self.absorb.iter().enumerate() {
            absorb.apply_strided(
                &q[n * head..],
                heads * head,
                rows,
                &mut absorbed[n * latent..],
                heads * latent,
                false,
            );
        }
        for (to, from) in absorbed.chunks_exact_mut(latent).zip(q.chunks_exact(head)) {
            to[self.kv_lora..].copy_from_slice(&from[self.nope..]);
        }

        let key = buffer(&mut work.low, latent);
        for span in &pass.plan.spans {
            for row in span.rows.clone() {
                let down = &mut down[row * width + kv_at..][..latent];
                pass.rotary.rotate(&mut down[self.kv_lora..], row, pass.angles);
                self.kv_norm.apply(&down[..self.kv_lora], &mut key[..self.kv_lora]);
                key[self.kv_lora..].copy_from_slice(&down[self.kv_lora..]);
                let slot = pass.plan.slots[row] as usize;
                kvs[span.seq].write(pass.layer, 0, slot, key, &key[..self.kv_lora]);
            }
        }

        let mixed = buffer(&mut work.mixed, rows * heads * self.kv_lora);
        for span in &pass.plan.spans {
            let (a, b) = (span.rows.start, span.rows.end);
            let see = pass.plan.visible(span, pass.window);
            let view = kvs[span.seq].view(pass.layer, 0);
            let q = &absorbed[a * heads * latent..b * heads * latent];
            attend(
                &mut work.attend,
                q,
                heads,
                view,
                &see,
                &mut mixed[a * heads * self.kv_lora..b * heads * self.kv_lora],
            );
        }

        let values = buffer(&mut work.values, rows * heads * self.v);
        for (n, expand) in self.expand.iter().enumerate() {
            let (from, to) = (&mixed[n * self.kv_lora..], &mut values[n * self.v..]);
            expand.apply_strided(from, heads * self.kv_lora, rows, to, heads * self.v, false);
        }
        self.out.apply(values, rows, x, true);
    }
}
