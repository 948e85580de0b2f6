//! Best-first trees on a block draft of 15 positions and 64 ranks, beside a plain `BinaryHeap` over full paths.
//!
//! `cargo bench -p treeline-policies --bench best_first`
//!
//! Time of a whole policy call (forest reset, ask, grow) on one core of a virtual AMD EPYC with nothing else running, 16 drafts
//! in turn, criterion's medians of one run:
//!
//! | | sharp, 16 | 64 | 256 nodes | flat, 16 | 64 | 256 nodes |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | `staircase`: one request on a block draft | 0.44 µs | 1.31 | 9.01 | 0.35 | 1.03 | 7.84 |
//! | `heap`: batches, conditional drafts | 1.47 | 7.70 | 38.6 | 1.16 | 6.01 | 35.7 |
//! | `plain`: a heap over full paths | 1.97 | 10.5 | 46.1 | 1.62 | 8.48 | 40.0 |
//!
//! The aims were 2 µs at 64 nodes and 9 µs at 256: met at 64 (8.0 times faster than `plain`), on the line at 256 (5.1 times).
//!
//! With one draft again and again, which the branch predictor learns, 256 nodes take half of that.
//!
//! What was tried for one request, in order: the prediction, and what 64 and 256 nodes took (sharp drafts, the loop alone,
//! least of 40 runs in a scratch program that is not kept):
//!
//! | version | predicted | measured |
//! | --- | --- | --- |
//! | full paths in a `BinaryHeap` | – | 9.7, 46.7 µs |
//! | entries (score, parent, rank) in a binary heap, the sibling replaces the top | a third: no paths to copy | 2.9, 18.5 |
//! | the staircase: a candidate is queued when both its predecessors are in the tree | half the pushes, a third of the entries | 2.2, 14.5 |
//! | its queue a sorted list, the best at the end, linear insertion | pops are free, insertions move 3 to 6 entries | 1.4, 10.0 |
//! | the same with binary search | fewer comparisons | slower, 2.5, 12.2: each step is mispredicted |
//! | depth beside the rank in the entry, scores beside the links | a shorter chain of loads | no difference, dropped |
//! | nodes in one array, a masked queue, the tree written at once | 240 instructions a node are too many | 1.0, 8.5: kept |
//! | the queue in no order, scanned for its least key; conditions added up, not branched upon | most of the time goes to branches that are guessed wrong | on 200 drafts in turn, too many to learn, 2.3 to 1.45 and 8.7 to 6.0: kept |
//!
//! The table above is of the version before the last: a few drafts in turn flatter a form with branches.
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::hint::black_box;
use treeline_core::{Batch, Caps, DraftView, Draw, Forest, Lattice, Round, Sampling, Seq, Tree, TreePolicy};
use treeline_policies::Registry;
use treeline_policies::conformance::scene::{Mix, limits, row};

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

/// Sixteen drafts, taken in turn: a branch predictor must not learn one by heart. `sharp` rows have a first rank of
/// probability .74 on average, as a good drafter's; the others .07, as an untrained one's.
fn drafts(sharp: bool) -> Vec<Lattice> {
    let mut mix = Mix::new(9);
    let draft = |_| {
        let mut lattice = Lattice::new(0);
        lattice.begin_seq();
        for _ in 0..15 {
            let scale = 1.0 + 6.0 * mix.unit();
            // Gumbel noise, scaled: the logits of a row.
            let mut weights: Vec<f64> =
                (0..64).map(|_| (scale * -(-mix.unit().max(1e-9).ln()).ln().abs()).exp().recip()).collect();
            weights.sort_by(|a, b| b.total_cmp(a));
            let sum = weights.iter().sum::<f64>() * 1.05;
            let mut row = row(&mut mix, 64, 0);
            if sharp {
                row.iter_mut().zip(&weights).for_each(|(c, w)| c.logp = (w / sum).ln() as f32);
            }
            lattice.push_row(&row, true, true);
        }
        lattice
    };
    (0..16).map(draft).collect()
}

fn benches(c: &mut Criterion) {
    for (name, sharp) in [("sharp", true), ("flat", false)] {
        group(c, name, &drafts(sharp));
    }
}

fn group(c: &mut Criterion, name: &str, drafts: &[Lattice]) {
    let mut group = c.benchmark_group(name);
    for budget in [16, 64, 256] {
        let limits = limits(budget, 15, 64);
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
        for lattice in drafts {
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
