//! Linear weights in the layout of the product kernel, as narrow as they were stored.
//!
//! A pass over a few rows is bound by reading the weights, so bf16 stays bf16 and packed INT4 becomes one byte a weight and
//! a scale a group; a panel is widened to f32, exactly, just before it is used, and serves all rows of the pass.

use super::arch;
use super::gemm::{Product, panel_width};
use crate::seeded::{Seeded, seeded};
use ndarray::ArrayView2;
use pulp::NullaryFnOnce;
use std::cell::RefCell;
use treeline_checkpoint::{GROUP, PackedInt4};

/// Weights `[out, in]` in panels of [`panel_width`] outputs: panel, then input, then output.
#[derive(Debug)]
pub(crate) struct Packed {
    inputs: usize,
    outputs: usize,
    stored: Stored,
}

#[derive(Debug)]
enum Stored {
    F32(Vec<f32>),
    /// The upper halves of f32 numbers.
    Bf16(Vec<u16>),
    /// Values −8 … 7, and a scale for each group of [`GROUP`] inputs: panel, then group, then output.
    Int4 {
        values: Vec<i8>,
        scales: Vec<f32>,
    },
}

impl Packed {
    /// Packs a linear layer's weight in the published layout, `[out, in]`.
    pub fn new(weight: ArrayView2<'_, f32>) -> Self {
        Self::concat(&[weight])
    }

    /// Packs several layers that read the same input as one, outputs side by side.
    pub fn concat(weights: &[ArrayView2<'_, f32>]) -> Self {
        let nr = panel_width();
        let inputs = weights.first().map_or(0, |w| w.ncols());
        let outputs = weights.iter().map(|w| w.nrows()).sum::<usize>();
        let mut data = vec![0.0f32; outputs.div_ceil(nr) * nr * inputs];
        for (j, row) in weights.iter().flat_map(|w| w.rows()).enumerate() {
            let base = j / nr * nr * inputs + j % nr;
            for (k, &value) in row.iter().enumerate() {
                data[base + k * nr] = value;
            }
        }
        let exact = data.iter().all(|x| x.to_bits() & 0xffff == 0);
        let stored = match exact {
            true => Stored::Bf16(data.iter().map(|x| (x.to_bits() >> 16) as u16).collect()),
            false => Stored::F32(data),
        };
        Self { inputs, outputs, stored }
    }

    /// Packs INT4 layers that read the same input as one, outputs side by side.
    pub fn int4(weights: &[PackedInt4<'_>]) -> Self {
        let nr = panel_width();
        let inputs = weights.first().map_or(0, |w| w.inp());
        let outputs = weights.iter().map(|w| w.out()).sum::<usize>();
        let (panels, groups) = (outputs.div_ceil(nr), inputs / GROUP);
        let mut values = vec![0i8; panels * nr * inputs];
        let mut scales = vec![0.0f32; panels * nr * groups];
        let rows = weights
            .iter()
            .flat_map(|w| w.packed().chunks_exact(inputs / 2).zip(w.scales().as_chunks::<2>().0.chunks_exact(groups)));
        for (j, (bytes, row_scales)) in rows.enumerate() {
            let (panel, column) = (j / nr, j % nr);
            for (i, byte) in bytes.iter().enumerate() {
                let at = (panel * inputs + 2 * i) * nr + column;
                values[at] = (byte & 15) as i8 - 8;
                values[at + nr] = (byte >> 4) as i8 - 8;
            }
            for (g, &scale) in row_scales.iter().enumerate() {
                let bits = u32::from(u16::from_le_bytes(scale)) << 16;
                scales[(panel * groups + g) * nr + column] = f32::from_bits(bits);
            }
        }
        Self { inputs, outputs, stored: Stored::Int4 { values, scales } }
    }

    /// Width of the input.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Width of the output.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// `out = x · Wᵀ` for `rows` contiguous rows; `out += …` when `add`.
    pub fn apply(&self, x: &[f32], rows: usize, out: &mut [f32], add: bool) {
        self.apply_strided(x, self.inputs, rows, out, self.outputs, add);
    }

    /// The same with row strides `x_stride` and `out_stride`, so that one head of many can be read and written in place.
    pub fn apply_strided(
        &self,
        x: &[f32],
        x_stride: usize,
        rows: usize,
        out: &mut [f32],
        out_stride: usize,
        add: bool,
    ) {
        if seeded(Seeded::RowsChangeSums) && rows == 1 && !add {
            return self.second_half_first(x, out);
        }
        let nr = panel_width();
        let size = nr * self.inputs;
        let mut product = |b: &[f32], column: usize, columns: usize| {
            let out = &mut out[column..];
            let (inner, b_stride, b_panel) = (self.inputs, nr, size);
            arch().dispatch(Product { x, x_stride, rows, inner, b, b_stride, b_panel, columns, out, out_stride, add });
        };
        if let Stored::F32(data) = &self.stored {
            return product(data, 0, self.outputs);
        }
        thread_local! {
            static PANEL: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
        }
        PANEL.with_borrow_mut(|panel| {
            panel.resize(size, 0.0);
            for column in (0..self.outputs).step_by(nr) {
                self.widen(column / nr, panel);
                product(panel, column, nr.min(self.outputs - column));
            }
        });
    }

    /// One panel as f32.
    fn widen(&self, panel: usize, out: &mut [f32]) {
        let nr = panel_width();
        let part = panel * out.len()..(panel + 1) * out.len();
        match &self.stored {
            Stored::F32(data) => out.copy_from_slice(&data[part]),
            Stored::Bf16(data) => arch().dispatch(WidenBf16 { from: &data[part], out }),
            Stored::Int4 { values, scales } => {
                let groups = self.inputs / GROUP * nr;
                let scales = &scales[panel * groups..(panel + 1) * groups];
                arch().dispatch(WidenInt4 { values: &values[part], scales, nr, out });
            }
        }
    }

    /// A seeded fault's order of summation.
    fn second_half_first(&self, x: &[f32], out: &mut [f32]) {
        let half = self.inputs / 2;
        let mut part = x[..self.inputs].to_vec();
        part[..half].fill(0.0);
        crate::seeded::without(|| {
            self.apply(&part, 1, out, false);
            part.copy_from_slice(&x[..self.inputs]);
            part[half..].fill(0.0);
            self.apply(&part, 1, out, true);
        });
    }
}

struct WidenBf16<'a> {
    from: &'a [u16],
    out: &'a mut [f32],
}

impl NullaryFnOnce for WidenBf16<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (out, &bits) in self.out.iter_mut().zip(self.from) {
            *out = f32::from_bits(u32::from(bits) << 16);
        }
    }
}

struct WidenInt4<'a> {
    values: &'a [i8],
    scales: &'a [f32],
    nr: usize,
    out: &'a mut [f32],
}

impl NullaryFnOnce for WidenInt4<'_> {
    type Output = ();

    /// The value is q × scale, one rounding in f32, as the checkpoint reader gives it.
    #[inline(always)]
    fn call(self) {
        let (rows, group) = (self.nr, self.nr * GROUP);
        let groups = self.values.chunks_exact(group).zip(self.out.chunks_exact_mut(group));
        for ((values, out), scales) in groups.zip(self.scales.chunks_exact(rows)) {
            for (values, out) in values.chunks_exact(rows).zip(out.chunks_exact_mut(rows)) {
                for ((out, &q), &scale) in out.iter_mut().zip(values).zip(scales) {
                    *out = f32::from(q) * scale;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::Array2;

    /// Whatever the storage and the shape: the product of f64 numbers, and the same bits as one row alone.
    #[test]
    fn products_are_right_and_do_not_depend_on_the_rows() {
        let mut noise = crate::tests::Noise(6);
        let mut number = |mask: u32| {
            let x = noise.below(2001) as f32 * 0.001 - 1.0;
            f32::from_bits(x.to_bits() & mask)
        };
        for (inputs, outputs) in [(1, 1), (32, 16), (33, 17), (64, 40), (100, 7)] {
            for mask in [u32::MAX, 0xffff_0000] {
                let weight = Array2::from_shape_fn((outputs, inputs), |_| number(mask));
                let packed = Packed::new(weight.view());
                // A single number may happen to be a bf16.
                let narrow = matches!(packed.stored, Stored::Bf16(_));
                assert!(narrow == (mask != u32::MAX) || inputs == 1);
                for rows in [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 130] {
                    let x = Array2::from_shape_fn((rows, inputs), |_| number(u32::MAX));
                    let mut out = vec![0.0; rows * outputs];
                    packed.apply(x.as_slice().unwrap(), rows, &mut out, false);
                    let want = x.mapv(f64::from).dot(&weight.mapv(f64::from).t());
                    for (r, row) in out.chunks_exact(outputs).enumerate() {
                        for (got, want) in row.iter().zip(want.row(r)) {
                            assert!((f64::from(*got) - want).abs() < 1e-5, "{inputs} x {outputs}, {rows} rows");
                        }
                        let mut alone = vec![0.0; outputs];
                        packed.apply(x.row(r).as_slice().unwrap(), 1, &mut alone, false);
                        assert_eq!(row, alone, "{inputs} x {outputs}, row {r} of {rows}");
                    }
                }
            }
        }
    }

    #[test]
    fn int4_gives_the_bits_of_the_dequantised_weight() {
        let (out, inp) = (24, 64);
        let packed: Vec<u8> = (0..out * inp / 2).map(|i| (i * 37 + i / 7) as u8).collect();
        let scales: Vec<u8> = (0..out * inp / GROUP).flat_map(|i| (0x3c00u16 + 37 * i as u16).to_le_bytes()).collect();
        let int4 = PackedInt4::new(out, inp, &packed, &scales).unwrap();
        let mut wide = vec![0.0; out * inp];
        int4.dequantise(&mut wide).unwrap();
        let wide = Array2::from_shape_vec((out, inp), wide).unwrap();
        let x: Vec<f32> = (0..3 * inp).map(|i| (i as f32 * 0.7).sin()).collect();
        let (mut a, mut b) = (vec![0.0; 3 * 2 * out], vec![0.0; 3 * 2 * out]);
        Packed::int4(&[int4, int4]).apply(&x, 3, &mut a, false);
        Packed::concat(&[wide.view(), wide.view()]).apply(&x, 3, &mut b, false);
        assert_eq!(a, b);
    }
}
