//! Best-first trees on a block draft of 15 positions and 64 ranks, beside a plain `BinaryHeap` over full paths.
//!
//! `cargo bench -p treeline-policies --bench best_first`
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::hint::black_box;
use treeline_core::{Batch, Caps, DraftView, Draw, Forest, Lattice, Round, Sampling, Seq, Tree, TreePolicy};
use treeline_policies::Registry;
use treeline_policies::conformance::scene::{limits, scene};

/// An entry of the plain heap: what a direct translation of the algorithm keeps.
#[derive(PartialEq)]
struct Path {
    score: f64,
    ranks: Vec<u32>,
    parent: u32,
}

impl Eq for Path {}

impl PartialOrd for Path {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Path {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.ranks.cmp(&self.ranks))
    }
}

fn plain(drafts: &Lattice, depth: u32, budget: u32, tree: &mut Tree) {
    let row = |depth: usize| drafts.level(0, depth as u32).unwrap_or(&[]);
    let mut heap = BinaryHeap::new();
    heap.push(Path { score: f64::from(row(1)[0].logp), ranks: vec![0], parent: 0 });
    while tree.nodes() < budget
        && let Some(Path { score, ranks, parent }) = heap.pop()
    {
        let (level, rank) = (ranks.len(), ranks[ranks.len() - 1] as usize);
        let node = tree.push(parent, row(level)[rank].token, rank as u32, score).unwrap();
        if level < depth as usize {
            let child = [&ranks[..], &[0]].concat();
            heap.push(Path { score: score + f64::from(row(level + 1)[0].logp), ranks: child, parent: node });
        }
        if let Some(c) = row(level).get(rank + 1) {
            let mut sibling = ranks;
            sibling[level - 1] += 1;
            let score = tree.scores()[parent as usize] + f64::from(c.logp);
            heap.push(Path { score, ranks: sibling, parent });
        }
    }
}

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("best_first_15x64");
    for budget in [16, 64, 256] {
        let limits = limits(budget, 15, 64);
        // Sixteen drafts in turn: a branch predictor must not learn one by heart.
        let drafts: Vec<Lattice> = (0..16)
            .map(|seed| {
                let mut lattice = Lattice::new(0);
                lattice.begin_seq();
                scene(seed, 1, limits, false, 0).players[0].rows.iter().for_each(|r| lattice.push_row(r, true, true));
                lattice
            })
            .collect();
        let seq = Seq {
            slot: 0,
            request: 0,
            index: 0,
            start: 9,
            root: 1,
            left: 100,
            eos: std::sync::Arc::from([]),
            sampling: Sampling::GREEDY,
            round: 0,
        };
        let batch = Batch { seqs: vec![seq] };
        let caps = [Caps { nodes: budget, depth: 15 }];
        let round = Round { index: 0, batch: &batch, caps: &caps, limits: &limits, draw: Draw::Ranked, cost: None };
        let build = |params| Registry::builtin().build("best-first", &params, &limits).unwrap();
        let mut forest = Forest::default();
        let (mut ask, mut wave) = (Vec::new(), Vec::new());
        let mut grow = |policy: &mut dyn TreePolicy, drafts: &Lattice, forest: &mut Forest| {
            forest.reset(&batch, &caps);
            ask.clear();
            policy.ask(&round, &mut ask);
            policy.grow(&round, black_box(drafts), forest, &mut wave);
            forest.tree(0).nodes()
        };
        let mut turn = 0;
        // A batch of one request: the same tree from the heap that batches and conditional drafts use.
        let mut staircase = build(serde_json::json!({}));
        let mut heap = build(serde_json::json!({ "scope": "batch", "mean": budget }));
        for (name, policy) in [("staircase", &mut staircase), ("heap", &mut heap)] {
            group.bench_function(BenchmarkId::new(name, budget), |b| {
                b.iter(|| {
                    turn = (turn + 1) % drafts.len();
                    black_box(grow(policy.as_mut(), &drafts[turn], &mut forest))
                });
            });
        }
        let mut tree = Tree::default();
        group.bench_function(BenchmarkId::new("plain", budget), |b| {
            b.iter(|| {
                turn = (turn + 1) % drafts.len();
                tree.reset(1, budget, 15);
                plain(black_box(&drafts[turn]), 15, budget, &mut tree);
                black_box(tree.nodes())
            });
        });
        // All three give the same trees.
        for lattice in &drafts {
            tree.reset(1, budget, 15);
            plain(lattice, 15, budget, &mut tree);
            for policy in [&mut staircase, &mut heap] {
                grow(policy.as_mut(), lattice, &mut forest);
                assert_eq!(forest.tree(0), &tree);
            }
        }
    }
    group.finish();
}

criterion_group!(best_first, benches);
criterion_main!(best_first);
