//! The attention kernel: floor + max(streaming the cache, the rows' flops), times its layers.
//!
//! The cache is read once a request. A table knows one row a request: what it says beyond its time at the shortest context
//! is streaming, against which the flops of all rows stand (`table+flops`).

use super::op::AttentionOp;
use super::work::Roof;
use crate::optable::Plane;

/// Batches whose floor is kept.
const FLOORS: usize = 1024;

/// How one kernel is timed.
#[derive(Debug, Clone)]
pub(super) enum Timing {
    /// Datasheet.
    Bound,
    /// A table, and the floors of batches 0 to [`FLOORS`].
    Table { decode: Box<Plane>, floors: Vec<f64> },
    /// Fitted: µs per cached token, and per row and cached token.
    Linear { token_us: f64, row_token_us: f64 },
}

/// One kernel of a pass, ready to be priced.
#[derive(Debug, Clone)]
pub(super) struct AttentionLaw {
    pub op: AttentionOp,
    pub timing: Timing,
    pub scale: f64,
}

/// The kernel at one batch and context: what is left depends on the rows. All in µs over all layers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Prepared {
    floor: f64,
    stream: f64,
    /// Streaming the cache entries of each row beyond one a request.
    extra: f64,
    /// Operations of each row.
    row: f64,
    requests: f64,
    pub inside: bool,
}

impl Prepared {
    /// Time of `rows` rows.
    pub(super) fn us(&self, rows: f64) -> f64 {
        self.floor + (self.stream + self.extra * (rows - self.requests).max(0.0)).max(self.row * rows)
    }
}

impl Timing {
    /// A table with its floors.
    pub(super) fn table(decode: Plane) -> Self {
        let shortest = decode.axes().1.first().copied().unwrap_or(1.0);
        let floors = (0..=FLOORS).map(|b| decode.at((b as f64).max(1.0), shortest).us).collect();
        Self::Table { decode: Box::new(decode), floors }
    }
}

impl AttentionLaw {
    /// The kernel for `requests` requests of `context` tokens each.
    pub(super) fn prepare(&self, roof: &Roof, requests: f64, context: f64) -> Prepared {
        let op = &self.op;
        let context = context.min(op.window);
        let times = f64::from(op.layers) * self.scale;
        let (token_us, row_us) = (op.token_bytes / roof.bytes_us, op.token_flops / roof.flops_us);
        if requests == 0.0 {
            return Prepared { floor: 0.0, stream: 0.0, extra: 0.0, row: 0.0, requests, inside: true };
        }
        match &self.timing {
            Timing::Bound => Prepared {
                floor: 0.0,
                stream: times * requests * (context + 1.0) * token_us,
                extra: times * token_us,
                row: times * (context + 1.0) * row_us,
                requests,
                inside: true,
            },
            Timing::Table { decode, floors } => {
                let looked = decode.at(requests, context + 1.0);
                let floor = floors.get(requests as usize).copied().unwrap_or_else(|| {
                    // Beyond the kept batches the floor grows as the table does.
                    floors[FLOORS] * requests / FLOORS as f64
                });
                let floor = floor.min(looked.us);
                Prepared {
                    floor: times * floor,
                    stream: times * (looked.us - floor),
                    extra: times * token_us,
                    row: times * (context + 1.0) * row_us,
                    requests,
                    inside: looked.inside,
                }
            }
            Timing::Linear { token_us, row_token_us } => Prepared {
                floor: 0.0,
                stream: self.scale * requests * context * token_us,
                extra: self.scale * token_us,
                row: self.scale * context * row_token_us,
                requests,
                inside: true,
            },
        }
    }

    /// Bytes that all layers read and write.
    pub(super) fn bytes(&self, rows: f64, requests: f64, context: f64) -> f64 {
        let op = &self.op;
        let tokens = requests * context.min(op.window) + rows;
        f64::from(op.layers) * tokens * op.token_bytes
    }

    /// Operations of all layers.
    pub(super) fn flops(&self, rows: f64, context: f64) -> f64 {
        f64::from(self.op.layers) * rows * (context.min(self.op.window) + 1.0) * self.op.token_flops
    }
}
