//! Mask and walk of trees of 64 and 256 nodes.
#![allow(missing_docs)]

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use treeline_core::draft::Lattice;
use treeline_core::law::{Rows, Scratch, Truth, judge};
use treeline_core::testing::Tiny;
use treeline_core::{AncestorMask, Law, Sampling, Seq, Tree};

/// Rows of a vocabulary as large as the mini pair's; every row is the same memory.
struct Same(Vec<f32>);

impl Rows for Same {
    fn logits(&self, _row: u32) -> &[f32] {
        &self.0
    }
}

struct All;

impl Truth for All {
    fn token(&self, _request: u64, _root: u32, depth: u32) -> Option<u32> {
        Some(depth)
    }
}

/// Three children a node: the first carries the depth as its token, so that a forced walk goes to the bottom.
fn tree(nodes: u32) -> Tree {
    let mut tree = Tree::new(0, nodes, 64);
    for node in 0..nodes {
        let (parent, rank) = (node / 3, node % 3);
        let depth = tree.depths()[parent as usize] + 1;
        // The tree has room for exactly these nodes.
        let _ = tree.push(parent, depth + rank * 1000, rank, 0.0);
    }
    tree
}

fn benches(c: &mut Criterion) {
    let seq = Seq {
        slot: 0,
        request: 0,
        index: 0,
        start: 100,
        root: 0,
        left: 1000,
        eos: [].as_slice().into(),
        sampling: Sampling::at(0.7),
        round: 0,
    };
    let rows = Same(Tiny { vocab: 8192, seed: 1, order: 1, spread: 8.0 }.logits(&[1]));
    let drafts = Lattice::new(0);
    for nodes in [64, 256] {
        let tree = tree(nodes);
        let mut mask = AncestorMask::default();
        c.bench_function(&format!("mask/{nodes}"), |b| b.iter(|| mask.rebuild(black_box(tree.parents()))));
        let mut group = c.benchmark_group("judge");
        let laws: [(&str, Law<'_>); 3] =
            [("forced", Law::Forced(&All)), ("greedy", Law::Greedy), ("sample-match", Law::SampleMatch { seed: 1 })];
        for (name, law) in laws {
            let mut scratch = Scratch::default();
            group.bench_function(BenchmarkId::new(name, nodes), |b| {
                b.iter(|| judge(&law, 0, &seq, black_box(&tree), &rows, &drafts, &mut scratch));
            });
        }
        group.finish();
    }
}

criterion_group!(all, benches);
criterion_main!(all);
