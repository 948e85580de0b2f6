//! What fits into a GPU: weights, drafter, and the key–value cache of how many requests.
//!
//! Ranks split attention heads, experts' widths, dense widths, embedding and head; latent attention's down-projections and the
//! routers are held by every rank, and so is the latent cache: under plain tensor parallelism more GPUs do not hold more
//! context of such a model.

use std::fmt;

use crate::profile::{Deployment, Drafter, Hardware, Model};

/// Bytes of one rank's weights, by part.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Weights {
    /// Attention of all layers.
    pub attention: f64,
    /// Routed experts.
    pub routed: f64,
    /// Shared experts.
    pub shared: f64,
    /// Routers.
    pub router: f64,
    /// Dense feed-forward parts.
    pub dense: f64,
    /// Embedding, and the head where it is not the same.
    pub vocabulary: f64,
}

impl Weights {
    /// Of one rank of `ranks`. Norms are left out (some megabytes).
    #[must_use]
    pub fn of(model: &Model, ranks: u32) -> Self {
        let (p, b, h) = (f64::from(ranks.max(1)), model.bytes_per_param, f64::from(model.hidden));
        let moe = f64::from(model.moe_layers());
        let of = |f: fn(&crate::profile::Moe, f64) -> f64| model.moe.map_or(0.0, |m| moe * f(&m, h));
        Self {
            attention: f64::from(model.layers) * model.attention.params_per_rank(model.hidden, ranks) * b,
            routed: model.routed_params() * model.moe.map_or(0.0, |m| m.bytes_per_param) / p,
            shared: of(|m, h| f64::from(m.shared) * 3.0 * h * f64::from(m.intermediate)) * b / p,
            router: of(|m, h| f64::from(m.experts) * h) * b,
            dense: f64::from(model.dense_layers) * 3.0 * h * f64::from(model.dense_intermediate) * b / p,
            vocabulary: model.embedding_params() * if model.tied { 1.0 } else { 2.0 } * b / p,
        }
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.attention + self.routed + self.shared + self.router + self.dense + self.vocabulary
    }
}

/// Memory of one rank, in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Room {
    /// What the engine may fill.
    pub usable_bytes: f64,
    /// The target's weights.
    pub weights: Weights,
    /// The drafter's weights.
    pub drafter_bytes: f64,
    /// Activations, graphs and buffers.
    pub reserve_bytes: f64,
    /// What is left for the cache.
    pub kv_room_bytes: f64,
    /// Cache of the target, per token.
    pub kv_bytes_per_token: f64,
    /// Cache of the drafter's unlimited layers, per token.
    pub drafter_kv_bytes_per_token: f64,
    /// Cache of the drafter's layers with a window, per token inside it.
    pub window_kv_bytes_per_token: f64,
    /// That window, tokens; 0: none.
    pub window: u32,
    /// Tokens that are allotted together.
    pub page_tokens: u32,
    /// Tokens of context that fit in all, drafter's cache included.
    pub tokens: u64,
}

/// Why a model or a load does not fit.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DoesNotFit {
    /// The weights alone exceed the memory.
    #[error(
        "{what} does not fit: {} are missing on each of {ranks} ranks, {layers} of {of} layers would fit\n\
         help: use more ranks, a GPU with more memory, or a larger `memory_fraction`", gb(*.missing_bytes)
    )]
    Weights {
        /// Model, deployment and machine.
        what: String,
        /// Missing on each rank.
        missing_bytes: u64,
        /// Ranks.
        ranks: u32,
        /// Layers that would leave no room for any cache.
        layers: u32,
        /// Layers of the model.
        of: u32,
    },
    /// The cache of so many requests exceeds the room.
    #[error(
        "{concurrency} requests of {context} tokens with {rows} rows do not fit: the cache needs {}, has {}, and {} are missing on \
         each rank\nhelp: the largest concurrency that fits is {largest_cap}", gb(*.needed_bytes), gb(*.room_bytes),
        gb(*.missing_bytes)
    )]
    Cache {
        /// Requests asked for.
        concurrency: u32,
        /// Tokens of each at its longest, prompt and response together.
        context: u32,
        /// Rows that each verifies.
        rows: u32,
        /// Bytes needed.
        needed_bytes: u64,
        /// Bytes that there are.
        room_bytes: u64,
        /// The difference.
        missing_bytes: u64,
        /// Most requests of this kind that fit; 0: not even one.
        largest_cap: u32,
    },
}

impl DoesNotFit {
    /// Bytes that are missing on each rank.
    #[must_use]
    pub fn missing_bytes(&self) -> u64 {
        match self {
            Self::Weights { missing_bytes, .. } | Self::Cache { missing_bytes, .. } => *missing_bytes,
        }
    }

    /// Most requests of the kind that was asked for; 0: none.
    #[must_use]
    pub fn largest_cap(&self) -> u32 {
        match self {
            Self::Weights { .. } => 0,
            Self::Cache { largest_cap, .. } => *largest_cap,
        }
    }
}

fn gb(bytes: u64) -> String {
    if bytes < 100_000_000 { format!("{:.3} MB", bytes as f64 / 1e6) } else { format!("{:.2} GB", bytes as f64 / 1e9) }
}

/// What is left for the cache on one rank.
///
/// # Errors
/// [`DoesNotFit::Weights`] where nothing is left.
pub fn room(
    model: &Model,
    drafter: Option<&Drafter>,
    deployment: &Deployment,
    hardware: &Hardware,
) -> Result<Room, DoesNotFit> {
    let ranks = deployment.ranks;
    let usable_bytes = hardware.hbm_bytes as f64 * deployment.memory_fraction;
    let weights = Weights::of(model, ranks);
    let drafter_bytes = drafter.map_or(0.0, |d| d.params() * d.bytes_per_param / f64::from(ranks));
    let reserve_bytes = deployment.reserve_bytes as f64;
    let kv_room_bytes = usable_bytes - weights.total() - drafter_bytes - reserve_bytes;
    let element = deployment.kv_bytes_per_element;
    let kv_bytes_per_token = model.attention.kv_elements_per_rank(ranks) * f64::from(model.layers) * element;
    if kv_room_bytes < kv_bytes_per_token {
        // The first layers are dense: what is taken away are the others.
        let layer = (weights.attention + weights.routed + weights.shared + weights.router + weights.dense)
            / f64::from(model.layers);
        let short = (-kv_room_bytes).max(0.0);
        let layers = f64::from(model.layers) - (short / layer).ceil();
        return Err(DoesNotFit::Weights {
            what: format!("{} under {} on {}", model.name, deployment.name, hardware.name),
            missing_bytes: (kv_bytes_per_token - kv_room_bytes).ceil() as u64,
            ranks,
            layers: layers.max(0.0) as u32,
            of: model.layers,
        });
    }
    let (full, windowed) = drafter.map_or((0.0, 0.0), |d| {
        let layer = 2.0 * f64::from(d.kv_heads.div_ceil(ranks)) * f64::from(d.head_dim) * element;
        (layer * f64::from(d.layers - d.window_layers), layer * f64::from(d.window_layers))
    });
    Ok(Room {
        usable_bytes,
        weights,
        drafter_bytes,
        reserve_bytes,
        kv_room_bytes,
        kv_bytes_per_token,
        drafter_kv_bytes_per_token: full,
        window_kv_bytes_per_token: windowed,
        window: drafter.map_or(0, |d| d.window),
        page_tokens: deployment.page_tokens,
        tokens: (kv_room_bytes / (kv_bytes_per_token + full)) as u64,
    })
}

impl Room {
    /// Cache bytes of one request whose context reaches `context` tokens while it verifies `rows` rows.
    #[must_use]
    pub fn request_bytes(&self, context: u32, rows: u32) -> f64 {
        let page = u64::from(self.page_tokens.max(1));
        let tokens = (u64::from(context) + u64::from(rows)).div_ceil(page) * page;
        let window = u64::from(self.window).min(tokens);
        tokens as f64 * (self.kv_bytes_per_token + self.drafter_kv_bytes_per_token)
            + window as f64 * self.window_kv_bytes_per_token
    }

    /// Most requests of this kind that fit together.
    #[must_use]
    pub fn largest_cap(&self, context: u32, rows: u32) -> u32 {
        (self.kv_room_bytes / self.request_bytes(context, rows).max(1.0)).floor().clamp(0.0, f64::from(u32::MAX)) as u32
    }

    /// Checks that `concurrency` requests fit, each with at most `context` tokens of prompt and response and `rows` rows of a
    /// tree, the root included, that have their cache entries until the walk.
    ///
    /// # Errors
    /// [`DoesNotFit::Cache`]: what is missing and the largest concurrency that fits.
    pub fn fit(&self, concurrency: u32, context: u32, rows: u32) -> Result<(), DoesNotFit> {
        let needed = f64::from(concurrency) * self.request_bytes(context, rows);
        if needed <= self.kv_room_bytes {
            return Ok(());
        }
        Err(DoesNotFit::Cache {
            concurrency,
            context,
            rows,
            needed_bytes: needed.ceil() as u64,
            room_bytes: self.kv_room_bytes as u64,
            missing_bytes: (needed - self.kv_room_bytes).ceil() as u64,
            largest_cap: self.largest_cap(context, rows),
        })
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |what: &str, bytes: f64| writeln!(f, "  {what:24} {:9.3} GB", bytes / 1e9);
        line("usable", self.usable_bytes)?;
        for (what, bytes) in [
            ("attention", self.weights.attention),
            ("routed experts", self.weights.routed),
            ("shared experts", self.weights.shared),
            ("routers", self.weights.router),
            ("dense layers", self.weights.dense),
            ("embedding and head", self.weights.vocabulary),
            ("drafter", self.drafter_bytes),
            ("activations and graphs", self.reserve_bytes),
        ] {
            line(what, -bytes)?;
        }
        line("left for the cache", self.kv_room_bytes)?;
        let each = self.kv_bytes_per_token + self.drafter_kv_bytes_per_token;
        writeln!(f, "  {} tokens of {each:.0} B", self.tokens)
    }
}
