//! Forced routing: which experts each row of a pass goes to, where the weights mean nothing (rows of random weights collapse
//! onto a few experts).

use crate::device::{Gpu, Pinned};
use crate::error::{CudaError, Result};
use treeline_core::stream::{philox4x32, unit};

/// A model of routing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoutingModel {
    /// Probability that a pick of a row repeats that of the row before; 0 = rows are independent, uniform over the experts.
    pub repeat: f64,
    /// Seed of the picks.
    pub seed: u64,
}

/// Tables that rounds use in turn.
const TABLES: usize = 4;

/// Picks of every layer and row, in a few versions, and the distinct experts of each.
#[derive(Debug)]
pub(crate) struct Routing {
    /// By version: i32 \[layers\]\[rows\]\[top_k\], as the device has it.
    tables: Vec<Vec<i32>>,
    /// By version: distinct experts of the first n + 1 rows, \[layers\]\[rows\].
    distinct: Vec<Vec<u32>>,
    rows: usize,
    layers: usize,
    top_k: usize,
    round: usize,
    /// What the graphs copy.
    pub pinned: Pinned<i32>,
}

impl Routing {
    pub fn new(gpu: &Gpu, model: RoutingModel, experts: u32, layers: usize, rows: usize, top_k: usize) -> Result<Self> {
        if !(0.0..1.0).contains(&model.repeat) || top_k == 0 || top_k > experts as usize {
            let problem = format!("is {}; it must be at least 0 and below 1", model.repeat);
            return Err(CudaError::Setting { key: "expert_overlap", problem });
        }
        let (mut tables, mut distinct) = (Vec::new(), Vec::new());
        for version in 0..TABLES {
            let (mut table, mut counts) = (Vec::new(), Vec::new());
            for layer in 0..layers {
                let key = [model.seed as u32, (model.seed >> 32) as u32];
                let mut before: Vec<i32> = Vec::new();
                let mut seen = vec![false; experts as usize];
                let mut count = 0;
                for row in 0..rows {
                    let mut picks: Vec<i32> = Vec::with_capacity(top_k);
                    let mut draw = 0;
                    while picks.len() < top_k {
                        let bits = philox4x32([draw, row as u32, layer as u32, version as u32], key);
                        let repeated = before.get(picks.len()).filter(|_| draw < 64 && unit(bits[0]) < model.repeat);
                        let fresh = ((u64::from(bits[1]) * u64::from(experts)) >> 32) as i32;
                        let pick = repeated.copied().unwrap_or(fresh);
                        draw += 1;
                        if !picks.contains(&pick) {
                            picks.push(pick);
                        }
                    }
                    for &pick in &picks {
                        count += u32::from(!std::mem::replace(&mut seen[pick as usize], true));
                    }
                    counts.push(count);
                    table.extend_from_slice(&picks);
                    before = picks;
                }
            }
            tables.push(table);
            distinct.push(counts);
        }
        let pinned = gpu.pinned(layers * rows * top_k)?;
        Ok(Self { tables, distinct, rows, layers, top_k, round: 0, pinned })
    }

    /// The next version, for a pass of at most `rows` rows; returns how many numbers of the pinned copy the pass reads.
    pub fn next(&mut self, rows: usize) -> usize {
        self.round += 1;
        let (table, each) = (&self.tables[self.round % TABLES], self.rows * self.top_k);
        let to = self.pinned.as_mut_slice();
        for layer in 0..self.layers {
            let range = layer * each..layer * each + rows * self.top_k;
            to[range.clone()].copy_from_slice(&table[range]);
        }
        self.len(rows)
    }

    /// Numbers of the pinned copy that a pass of `rows` rows reads.
    pub fn len(&self, rows: usize) -> usize {
        ((self.layers - 1) * self.rows + rows) * self.top_k
    }

    /// Checks the experts that a pass of `rows` real rows ran against those that were asked for.
    ///
    /// # Errors
    /// [`CudaError::Model`] with the first layer that ran others.
    pub fn check(&self, rows: usize, ran: &[u32]) -> Result<()> {
        let distinct = &self.distinct[self.round % TABLES];
        for (layer, &ran) in ran.iter().enumerate() {
            let asked = distinct[layer * self.rows + rows - 1];
            if ran != asked {
                let why = format!("layer {layer} with experts ran {ran} of them, {asked} were asked for");
                return Err(CudaError::Model(why));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeSet;

    fn routing(repeat: f64) -> Option<Routing> {
        let gpu = Gpu::emulated().ok()?;
        Some(Routing::new(&gpu, RoutingModel { repeat, seed: 9 }, 384, 60, 65, 8).unwrap())
    }

    /// Experts of the first `rows` rows of a layer, counted from what the device is given.
    fn count(routing: &Routing, layer: usize, rows: usize) -> u32 {
        let from = layer * routing.rows * routing.top_k;
        let picks = &routing.pinned.as_slice()[from..][..rows * routing.top_k];
        assert!(picks.chunks(routing.top_k).all(|row| row.iter().collect::<BTreeSet<_>>().len() == routing.top_k));
        picks.iter().collect::<BTreeSet<_>>().len() as u32
    }

    #[test]
    fn what_is_asked_for_is_what_is_checked() {
        let Some(mut routing) = routing(0.25) else { return };
        for rows in [1, 8, 65, 17] {
            let read = routing.next(rows);
            assert_eq!(read, (59 * 65 + rows) * 8);
            let mut ran: Vec<u32> = (0..60).map(|layer| count(&routing, layer, rows)).collect();
            routing.check(rows, &ran).unwrap();
            // One expert that was not asked for, or one row more, is noticed.
            ran[41] += 1;
            let why = routing.check(rows, &ran).unwrap_err().to_string();
            assert!(why.contains("layer 41"), "{why}");
            ran[41] -= 1;
            assert_eq!(routing.check(rows + 1, &ran).is_ok(), rows == 65 && ran.is_empty());
        }
    }

    /// Independent rows touch 384 · (1 − (1 − 8/384)ⁿ) experts on average; rows that repeat each other fewer.
    #[test]
    fn overlap_lowers_the_count() {
        let mean = |repeat: f64, rows: usize| {
            let mut routing = routing(repeat)?;
            routing.next(rows);
            Some((0..60).map(|layer| f64::from(count(&routing, layer, rows))).sum::<f64>() / 60.0)
        };
        for rows in [8, 17, 65] {
            let Some(alone) = mean(0.0, rows) else { return };
            let formula = 384.0 * (1.0 - (1.0f64 - 8.0 / 384.0).powi(rows as i32));
            assert!((alone / formula - 1.0).abs() < 0.02, "{rows} rows: {alone} experts, {formula} expected");
            let alike = mean(0.5, rows).unwrap();
            assert!(alike < 0.8 * alone, "{rows} rows: {alike} experts with overlap, {alone} without");
        }
    }
}
