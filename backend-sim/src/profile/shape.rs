//! Counts that follow from a model's shape: parameters, bytes, cached elements.

use super::{Attention, Model, Moe};

impl Attention {
    /// Query heads.
    #[must_use]
    pub fn heads(&self) -> u32 {
        match *self {
            Self::Mla { heads, .. } | Self::Gqa { heads, .. } => heads,
        }
    }

    /// Elements that one layer caches per token, over all ranks of a plain split: the latent and its rotary part, or keys
    /// and values of all heads.
    #[must_use]
    pub fn kv_elements(&self) -> f64 {
        match *self {
            Self::Mla { kv_lora, rope, .. } => f64::from(kv_lora + rope),
            Self::Gqa { kv_heads, head_dim, .. } => 2.0 * f64::from(kv_heads) * f64::from(head_dim),
        }
    }

    /// Elements that one layer caches per token on each of `ranks`: a latent is replicated, key heads are split until each
    /// rank has one.
    #[must_use]
    pub fn kv_elements_per_rank(&self, ranks: u32) -> f64 {
        match *self {
            Self::Mla { .. } => self.kv_elements(),
            Self::Gqa { kv_heads, head_dim, .. } => {
                2.0 * f64::from(kv_heads.div_ceil(ranks.max(1))) * f64::from(head_dim)
            }
        }
    }

    /// Parameters of one layer's attention that every rank holds whole: the down-projections of latent attention.
    #[must_use]
    pub fn replicated_params(&self, hidden: u32) -> f64 {
        match *self {
            Self::Mla { q_lora, kv_lora, rope, .. } => f64::from(hidden) * f64::from(q_lora + kv_lora + rope),
            Self::Gqa { .. } => 0.0,
        }
    }

    /// Parameters of one layer's attention that ranks share between them.
    ///
    /// Latent attention: `q_b`, `kv_b`, `o`. Grouped: `q`, `k`, `v`, `o`. Norms are left out (some thousands).
    #[must_use]
    pub fn split_params(&self, hidden: u32) -> f64 {
        let h = f64::from(hidden);
        match *self {
            Self::Mla { heads, q_lora, kv_lora, nope, rope, v_head } => {
                let (heads, qk) = (f64::from(heads), f64::from(nope + rope));
                let into_q = if q_lora == 0 { h } else { f64::from(q_lora) };
                heads * (into_q * qk + f64::from(kv_lora) * f64::from(nope + v_head) + f64::from(v_head) * h)
            }
            Self::Gqa { heads, kv_heads, head_dim } => 2.0 * h * f64::from(head_dim) * f64::from(heads + kv_heads),
        }
    }
}

impl Attention {
    /// Parameters of one layer's attention on each of `ranks`: a rank has one key head at least, so few heads are copied.
    #[must_use]
    pub fn params_per_rank(&self, hidden: u32, ranks: u32) -> f64 {
        let p = f64::from(ranks.max(1));
        match *self {
            Self::Mla { .. } => self.replicated_params(hidden) + self.split_params(hidden) / p,
            Self::Gqa { heads, kv_heads, head_dim } => {
                let kv = f64::from(kv_heads.div_ceil(ranks.max(1)));
                2.0 * f64::from(hidden) * f64::from(head_dim) * (f64::from(heads) / p + kv)
            }
        }
    }
}

impl Moe {
    /// Parameters of one expert of a model of this width: gate, up and down.
    #[must_use]
    pub fn expert_params(&self, hidden: u32) -> f64 {
        3.0 * f64::from(hidden) * f64::from(self.intermediate)
    }

    /// Bytes of one routed expert, scales included.
    #[must_use]
    pub fn expert_bytes(&self, hidden: u32) -> f64 {
        self.expert_params(hidden) * self.bytes_per_param
    }
}

impl Model {
    /// Elements cached per token over all layers.
    #[must_use]
    pub fn kv_elements(&self) -> f64 {
        self.attention.kv_elements() * f64::from(self.layers)
    }

    /// Parameters of the embedding; the head has as many again unless it is tied.
    #[must_use]
    pub fn embedding_params(&self) -> f64 {
        f64::from(self.vocab) * f64::from(self.hidden)
    }

    /// Parameters of the routed experts of all layers.
    #[must_use]
    pub fn routed_params(&self) -> f64 {
        self.moe.map_or(0.0, |m| f64::from(self.moe_layers()) * f64::from(m.experts) * m.expert_params(self.hidden))
    }

    /// All other parameters: attention, dense layers, shared experts, routers, embedding and head.
    #[must_use]
    pub fn other_params(&self) -> f64 {
        let a = &self.attention;
        let attention = f64::from(self.layers) * (a.replicated_params(self.hidden) + a.split_params(self.hidden));
        let dense = f64::from(self.dense_layers) * 3.0 * f64::from(self.hidden) * f64::from(self.dense_intermediate);
        let moe = self.moe.map_or(0.0, |m| {
            let shared = f64::from(m.shared) * m.expert_params(self.hidden);
            f64::from(self.moe_layers()) * (shared + f64::from(m.experts) * f64::from(self.hidden))
        });
        attention + dense + moe + self.embedding_params() * if self.tied { 1.0 } else { 2.0 }
    }

    /// All parameters.
    #[must_use]
    pub fn params(&self) -> f64 {
        self.routed_params() + self.other_params()
    }

    /// Bytes of all weights.
    #[must_use]
    pub fn bytes(&self) -> f64 {
        self.routed_params() * self.moe.map_or(0.0, |m| m.bytes_per_param) + self.other_params() * self.bytes_per_param
    }
}
