//! Attention of the rows of one request over its cache: the past, then what each row may see of the tree.
//!
//! Scores stand in *position* order, past first, then ancestors by depth; the weighted sum of the values is one chain in
//! that order. So a node's output has the same bits as that of the same path decoded token by token, where the ancestors
//! are already part of the past.

use super::{Product, arch, gemm::Indexed, gemm::indexed_product, panel_width, softmax};

/// One key/value head of one layer of one request's cache.
#[derive(Clone, Copy)]
pub(crate) struct KvView<'a> {
    /// Keys in panels of [`panel_width`] slots: panel, then key dimension, then slot.
    pub keys: &'a [f32],
    /// Values by slot, `value_stride` apart (a whole number of panels).
    pub values: &'a [f32],
    pub key_dim: usize,
    pub value_dim: usize,
    pub value_stride: usize,
}

/// What the rows of one request see.
#[derive(Clone, Copy)]
pub(crate) struct Visible<'a> {
    /// Slots `[0, start)` are the past: slot = position there.
    pub start: usize,
    /// Slots behind `start` that hold rows of this pass.
    pub width: usize,
    /// Per row: the end of its list in `tails`.
    pub tail_ends: &'a [usize],
    /// Where the first row's list starts in `tails`.
    pub tail_begin: usize,
    /// Offsets from `start` that a row sees, in position order.
    pub tails: &'a [u32],
    /// Per row: its absolute position.
    pub positions: &'a [u32],
    /// Sliding window in positions; `None` = all.
    pub window: Option<usize>,
    /// Whether the window also limits what lies behind `start` (a causal target), or the past alone (a drafter's block).
    pub window_tail: bool,
}

/// Working memory of [`attend`].
#[derive(Debug, Default)]
pub(crate) struct Attend {
    scores: Vec<f32>,
    scale: Vec<f32>,
}

/// `q` holds `rows · group` query vectors (already scaled), `out` gets as many value vectors; both contiguous.
pub(crate) fn attend(work: &mut Attend, q: &[f32], group: usize, kv: KvView<'_>, see: &Visible<'_>, out: &mut [f32]) {
    let nr = panel_width();
    let rows = see.positions.len();
    let (start, total) = (see.start, see.start + see.width);
    let stride = total.div_ceil(nr) * nr;
    let many = rows * group;
    let first_of = |r: usize| {
        let low = see.window.map_or(0, |w| (see.positions[r] as usize + 1).saturating_sub(w));
        if see.window_tail { low } else { low.min(start) }
    };
    let low = (0..rows).map(first_of).min().unwrap_or(0).min(start);
    let first_panel = low / nr;

    work.scores.resize(many * stride, 0.0);
    work.scale.resize(many, 0.0);
    arch().dispatch(Product {
        x: q,
        x_stride: kv.key_dim,
        rows: many,
        inner: kv.key_dim,
        b: &kv.keys[first_panel * nr * kv.key_dim..],
        b_stride: nr,
        b_panel: nr * kv.key_dim,
        columns: stride - first_panel * nr,
        out: &mut work.scores[first_panel * nr..],
        out_stride: stride,
        add: false,
    });

    let tail_of = |r: usize| {
        let begin = if r == 0 { see.tail_begin } else { see.tail_ends[r - 1] };
        &see.tails[begin..see.tail_ends[r]]
    };
    // Rows that all see one contiguous stretch (a single row, a drafter's block) need no list: one product covers it.
    let whole = (0..rows).all(|r| tail_of(r).len() == see.width);
    for r in 0..rows {
        let (first, tail) = (first_of(r), tail_of(r));
        for j in 0..group {
            let row = (r * group + j) * stride;
            let scores = &mut work.scores[row..row + stride];
            // Ascending offsets: a score never overwrites one that is still to be read.
            for (a, &offset) in tail.iter().enumerate() {
                scores[start + a] = scores[start + offset as usize];
            }
            scores[low..first.max(low)].fill(0.0);
            work.scale[r * group + j] = softmax(&mut scores[first..start + tail.len()]);
        }
    }

    out[..many * kv.value_dim].fill(0.0);
    let end = if whole { total } else { start };
    arch().dispatch(Product {
        x: &work.scores[low..],
        x_stride: stride,
        rows: many,
        inner: end - low,
        b: &kv.values[low * kv.value_stride..],
        b_stride: kv.value_stride,
        b_panel: nr,
        columns: kv.value_dim,
        out,
        out_stride: kv.value_dim,
        add: false,
    });
    for r in 0..rows {
        let from = r * group;
        if !whole {
            // Continues the chain of sums where the past ended; what a window hides has weight zero.
            indexed_product(Indexed {
                x: &work.scores[from * stride + start..],
                x_stride: stride,
                rows: group,
                b: &kv.values[start * kv.value_stride..],
                b_stride: kv.value_stride,
                index: tail_of(r),
                columns: kv.value_dim,
                out: &mut out[from * kv.value_dim..],
                out_stride: kv.value_dim,
            });
        }
        for j in from..from + group {
            let scale = work.scale[j];
            for x in &mut out[j * kv.value_dim..(j + 1) * kv.value_dim] {
                *x *= scale;
            }
        }
    }
}
