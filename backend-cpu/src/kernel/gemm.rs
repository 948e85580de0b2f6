//! Matrix products whose every element is one chain of fused multiply-adds over the inner dimension, in order.
//!
//! `ndarray`'s `.dot` packs the weights anew at every call, which costs more than the product itself for the few rows of a
//! draft tree (on one Zen 3 core, 8 rows × 320 × 8192: 9.7 GFLOP/s against about 45 here; one row: 1.2 against 17). Here
//! the weights are packed once, when the model is loaded ([`super::Packed`]). The chain also gives row invariance by construction: element
//! `(r, j)` is `fma(x[r][k], w[k][j], …)` for k = 0, 1, 2 …, whatever the number of rows, and a product that is continued
//! from a stored partial sum gives the same bits as one that is not interrupted.

use super::arch;
use pulp::{Simd, WithSimd};

/// Columns of one panel: two vectors of the machine's unit.
pub(crate) fn panel_width() -> usize {
    struct Width;
    impl WithSimd for Width {
        type Output = usize;
        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> usize {
            2 * S::F32_LANES
        }
    }
    arch().dispatch(Width)
}

/// One product `out (+)= x · b`; `b` is read in panels of [`panel_width`] columns, row `k` of panel `p` at
/// `p · b_panel + k · b_stride`.
pub(crate) struct Product<'a> {
    pub x: &'a [f32],
    pub x_stride: usize,
    pub rows: usize,
    pub inner: usize,
    pub b: &'a [f32],
    pub b_stride: usize,
    pub b_panel: usize,
    pub columns: usize,
    pub out: &'a mut [f32],
    pub out_stride: usize,
    pub add: bool,
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let nr = 2 * S::F32_LANES;
        for panel in 0..self.columns.div_ceil(nr) {
            let column = panel * nr;
            let b = &self.b[panel * self.b_panel..];
            let width = nr.min(self.columns - column);
            let mut row = 0;
            while row < self.rows {
                let x = &self.x[row * self.x_stride..];
                let out = &mut self.out[row * self.out_stride + column..];
                let tile = Tile {
                    x,
                    x_stride: self.x_stride,
                    inner: self.inner,
                    b,
                    b_stride: self.b_stride,
                    out,
                    out_stride: self.out_stride,
                    width,
                    add: self.add,
                };
                // Six rows fill the sixteen vector registers; a remainder of seven or eight runs as 4 + 3 or 4 + 4.
                row += match self.rows - row {
                    1 => tile.run::<S, 1>(simd),
                    2 => tile.run::<S, 2>(simd),
                    3 => tile.run::<S, 3>(simd),
                    4 | 7 | 8 => tile.run::<S, 4>(simd),
                    5 => tile.run::<S, 5>(simd),
                    _ => tile.run::<S, 6>(simd),
                };
            }
        }
    }
}

struct Tile<'a> {
    x: &'a [f32],
    x_stride: usize,
    inner: usize,
    b: &'a [f32],
    b_stride: usize,
    out: &'a mut [f32],
    out_stride: usize,
    width: usize,
    add: bool,
}

impl Tile<'_> {
    /// `R` rows of one panel; returns `R`.
    #[inline(always)]
    fn run<S: Simd, const R: usize>(self, simd: S) -> usize {
        let lanes = S::F32_LANES;
        let mut sums = [[simd.splat_f32s(0.0); 2]; R];
        if self.add {
            for (r, sum) in sums.iter_mut().enumerate() {
                let from = &self.out[r * self.out_stride..][..self.width];
                *sum = load_row(simd, from, lanes);
            }
        }
        // A loop and not `from_fn`, whose closure would be called without the vector unit.
        let mut x: [&[f32]; R] = [&[]; R];
        for (r, x) in x.iter_mut().enumerate() {
            *x = &self.x[r * self.x_stride..][..self.inner];
        }
        let b = self.b;
        for k in 0..self.inner {
            let (b, _) = S::as_simd_f32s(&b[k * self.b_stride..][..2 * lanes]);
            let (b0, b1) = (b[0], b[1]);
            for r in 0..R {
                let a = simd.splat_f32s(x[r][k]);
                sums[r][0] = simd.mul_add_f32s(a, b0, sums[r][0]);
                sums[r][1] = simd.mul_add_f32s(a, b1, sums[r][1]);
            }
        }
        for (r, sum) in sums.iter().enumerate() {
            store_row(simd, &mut self.out[r * self.out_stride..][..self.width], sum, lanes);
        }
        R
    }
}

#[inline(always)]
fn load_row<S: Simd>(simd: S, from: &[f32], lanes: usize) -> [S::f32s; 2] {
    if let ([a, b], []) = S::as_simd_f32s(from) {
        return [*a, *b];
    }
    let split = lanes.min(from.len());
    [simd.partial_load_f32s(&from[..split]), simd.partial_load_f32s(&from[split..])]
}

#[inline(always)]
fn store_row<S: Simd>(simd: S, to: &mut [f32], sum: &[S::f32s; 2], lanes: usize) {
    if let ([a, b], []) = S::as_mut_simd_f32s(to) {
        (*a, *b) = (sum[0], sum[1]);
        return;
    }
    let (low, high) = to.split_at_mut(lanes.min(to.len()));
    simd.partial_store_f32s(low, sum[0]);
    simd.partial_store_f32s(high, sum[1]);
}

/// `out[r] += Σ_a x[r][a] · b[index[a]]`, a in order, for a few rows that share one list of rows of `b`; `b` is row-major
/// with `b_stride` columns (padded to whole panels).
pub(crate) struct Indexed<'a> {
    pub x: &'a [f32],
    pub x_stride: usize,
    pub rows: usize,
    pub b: &'a [f32],
    pub b_stride: usize,
    pub index: &'a [u32],
    pub columns: usize,
    pub out: &'a mut [f32],
    pub out_stride: usize,
}

impl WithSimd for Indexed<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let nr = 2 * S::F32_LANES;
        for column in (0..self.columns).step_by(nr) {
            let mut row = 0;
            while row < self.rows {
                row += match self.rows - row {
                    1 => self.tile::<S, 1>(simd, row, column),
                    2 => self.tile::<S, 2>(simd, row, column),
                    3 => self.tile::<S, 3>(simd, row, column),
                    _ => self.tile::<S, 4>(simd, row, column),
                };
            }
        }
    }
}

impl Indexed<'_> {
    #[inline(always)]
    fn tile<S: Simd, const R: usize>(&mut self, simd: S, row: usize, column: usize) -> usize {
        let lanes = S::F32_LANES;
        let width = (2 * lanes).min(self.columns - column);
        let mut sums = [[simd.splat_f32s(0.0); 2]; R];
        for (r, sum) in sums.iter_mut().enumerate() {
            *sum = load_row(simd, &self.out[(row + r) * self.out_stride + column..][..width], lanes);
        }
        for (a, &at) in self.index.iter().enumerate() {
            let (b, _) = S::as_simd_f32s(&self.b[at as usize * self.b_stride + column..][..2 * lanes]);
            for (r, sum) in sums.iter_mut().enumerate() {
                let x = simd.splat_f32s(self.x[(row + r) * self.x_stride + a]);
                sum[0] = simd.mul_add_f32s(x, b[0], sum[0]);
                sum[1] = simd.mul_add_f32s(x, b[1], sum[1]);
            }
        }
        for (r, sum) in sums.iter().enumerate() {
            store_row(simd, &mut self.out[(row + r) * self.out_stride + column..][..width], sum, lanes);
        }
        R
    }
}

/// Runs an [`Indexed`] product.
pub(crate) fn indexed_product(product: Indexed<'_>) {
    arch().dispatch(product);
}
