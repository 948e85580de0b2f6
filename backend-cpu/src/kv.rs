//! The key/value cache of one sequence, in the layout that the attention kernel reads.

use crate::kernel::{KvView, panel_width};
use crate::seeded::{Seeded, seeded};

/// Sizes of one model's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KvShape {
    pub layers: usize,
    /// Key/value heads; latent attention has one.
    pub heads: usize,
    pub key_dim: usize,
    pub value_dim: usize,
}

/// One sequence's keys and values on every layer, by slot. Slot = position for committed tokens; the rows of a tree lie
/// behind them by index until the accepted path is gathered.
#[derive(Debug)]
pub(crate) struct SeqKv {
    shape: KvShape,
    value_stride: usize,
    slots: usize,
    /// Layer-major, then head.
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
}

impl SeqKv {
    /// An empty cache; memory comes with the first rows and is kept.
    pub fn new(shape: KvShape) -> Self {
        let nr = panel_width();
        let parts = shape.layers * shape.heads;
        Self {
            shape,
            value_stride: shape.value_dim.div_ceil(nr) * nr,
            slots: 0,
            keys: vec![Vec::new(); parts],
            values: vec![Vec::new(); parts],
        }
    }

    /// Makes room for slots `[0, slots)`.
    pub fn reserve(&mut self, slots: usize) {
        if slots <= self.slots {
            return;
        }
        // Steps of 64 slots, and at least half as much again, so that a growing sequence is copied a few times only.
        let step = 64.max(panel_width());
        self.slots = slots.max(self.slots + self.slots / 2).div_ceil(step) * step;
        for keys in &mut self.keys {
            keys.resize(self.slots * self.shape.key_dim, 0.0);
        }
        for values in &mut self.values {
            values.resize(self.slots * self.value_stride, 0.0);
        }
    }

    /// Writes one slot of one head.
    pub fn write(&mut self, layer: usize, head: usize, slot: usize, key: &[f32], value: &[f32]) {
        let part = layer * self.shape.heads + head;
        let (nr, dim) = (panel_width(), self.shape.key_dim);
        let base = key_offset(slot, dim);
        let keys = &mut self.keys[part];
        for (d, &k) in key.iter().enumerate() {
            keys[base + d * nr] = k;
        }
        self.values[part][slot * self.value_stride..][..value.len()].copy_from_slice(value);
    }

    /// What the attention kernel reads.
    pub fn view(&self, layer: usize, head: usize) -> KvView<'_> {
        let part = layer * self.shape.heads + head;
        KvView {
            keys: &self.keys[part],
            values: &self.values[part],
            key_dim: self.shape.key_dim,
            value_dim: self.shape.value_dim,
            value_stride: self.value_stride,
        }
    }

    /// Moves the rows at `start + offsets[i]` to `start + i`, on every layer and head. Offsets ascend, so no row is
    /// overwritten before it is read.
    pub fn gather(&mut self, start: usize, offsets: &[u32]) {
        debug_assert!(offsets.windows(2).all(|w| w[0] < w[1]));
        let (nr, dim, stride) = (panel_width(), self.shape.key_dim, self.value_stride);
        let moves = || {
            let pairs = offsets.iter().enumerate().map(|(i, &o)| (start + o as usize, start + i));
            pairs.filter(|(from, to)| from != to)
        };
        let mut parts = self.keys.len();
        if seeded(Seeded::LayerSkipsGather) {
            parts -= self.shape.heads;
        }
        for keys in &mut self.keys[..parts] {
            for (from, to) in moves() {
                let (a, b) = (key_offset(from, dim), key_offset(to, dim));
                for d in 0..dim {
                    keys[b + d * nr] = keys[a + d * nr];
                }
            }
        }
        for values in &mut self.values[..parts] {
            for (from, to) in moves() {
                values.copy_within(from * stride..(from + 1) * stride, to * stride);
            }
        }
    }

    /// Bits of everything that is stored for slots `[0, slots)`, one list per layer: what two caches must agree on.
    #[cfg(test)]
    pub fn dump(&self, slots: usize) -> Vec<Vec<u32>> {
        let nr = panel_width();
        let part = |keys: &[f32], values: &[f32]| -> Vec<u32> {
            let of = |slot: usize| {
                let keys = (0..self.shape.key_dim).map(move |d| keys[key_offset(slot, self.shape.key_dim) + d * nr]);
                keys.chain(values[slot * self.value_stride..][..self.shape.value_dim].iter().copied())
            };
            (0..slots).flat_map(of).map(f32::to_bits).collect()
        };
        let parts: Vec<Vec<u32>> = self.keys.iter().zip(&self.values).map(|(k, v)| part(k, v)).collect();
        parts.chunks(self.shape.heads).map(<[Vec<u32>]>::concat).collect()
    }
}

/// Where the key of `slot` starts; its dimensions follow a panel's width apart.
fn key_offset(slot: usize, dim: usize) -> usize {
    let nr = panel_width();
    let offset = slot / nr * nr * dim + slot % nr;
    if seeded(Seeded::Offset32) { offset as u32 as usize } else { offset }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeded::with;

    /// Public fault 29: slot 2²² with 1152 numbers a slot lies beyond 32 bits.
    #[test]
    fn fault_29_offsets_do_not_wrap() {
        let check = || key_offset(1 << 22, 1152) as u128 == (1u128 << 22) * 1152;
        assert!(check());
        assert!(!with(Seeded::Offset32, check));
    }
}
