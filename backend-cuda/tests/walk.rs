//! The plan of a pass from trees on the device, and the walk, against the host's plan and law.

use treeline_core::Tree;
use treeline_cuda::device::{Gpu, Ptr};
use treeline_cuda::ops::plan::{Plan, PlanArgs};
use treeline_cuda::ops::rows::{Bucket, MASK_WORDS, RowPlan, RowsPtr, Sight};
use treeline_cuda::ops::tree::Trees;
use treeline_cuda::ops::walk::{Verdicts, Walk, WalkArgs, WalkFault};
use treeline_cuda::testing::{Numbers, gpus};

const SINK: u32 = 77_777;

/// A random tree of `nodes` nodes of at most `levels` levels; siblings carry different tokens.
fn random_tree(n: &mut Numbers, nodes: usize, levels: u32) -> Tree {
    let mut tree = Tree::new(n.below(50) as u32, nodes as u32, levels);
    while tree.nodes() < nodes as u32 {
        let parent = n.below(u64::from(tree.rows())) as u32;
        let token = n.below(12 + nodes as u64) as u32;
        if tree.depths()[parent as usize] < levels && tree.child(parent, token).is_none() {
            tree.push(parent, token, 0, 0.0).unwrap();
        }
    }
    tree
}

/// `forest` in the layout of tree programs; padded sequences have no row.
fn upload(gpu: &Gpu, forest: &[Tree], seqs: usize, most: usize) -> Trees {
    let trees = Trees::new(gpu, seqs, most).unwrap();
    gpu.fill(trees.words(), 0xFF).unwrap();
    let p = trees.ptrs();
    let at = |base: Ptr, s: usize| base.offset(s * (most + 1) * 4);
    let rows: Vec<u32> = (0..seqs).map(|s| forest.get(s).map_or(0, Tree::rows)).collect();
    gpu.copy_in(p.rows, &rows).unwrap();
    gpu.copy_in(p.fault, &vec![0u32; seqs]).unwrap();
    for (s, tree) in forest.iter().enumerate() {
        gpu.copy_in(at(p.token, s), tree.tokens()).unwrap();
        gpu.copy_in(at(p.parent, s), tree.parents()).unwrap();
    }
    trees
}

/// Every word of a plan that kernels may read in `bucket`, and how many others lost their poison.
fn words(gpu: &Gpu, p: RowsPtr, rows: usize, seqs: usize, bucket: Bucket) -> (Vec<Vec<u32>>, usize) {
    let mut inside = Vec::new();
    let mut touched = 0;
    let mut part = |at: Ptr, all: usize, used: usize| {
        let read: Vec<u32> = gpu.read(at, all).unwrap();
        touched += read[used..].iter().filter(|w| **w != 0xABAB_ABAB).count();
        inside.push(read[..used].to_vec());
    };
    let (r, s) = (bucket.rows as usize, bucket.seqs as usize);
    for at in [p.token, p.position, p.kv_row, p.seq, p.offset] {
        part(at, rows, r);
    }
    part(p.mask, rows * MASK_WORDS, r * MASK_WORDS);
    for at in [p.seq_kv, p.seq_start, p.seq_begin, p.seq_rows] {
        part(at, seqs, s);
    }
    (inside, touched)
}

fn poison(gpu: &Gpu, plan: &RowPlan) {
    let words = plan.capacity() * (5 + MASK_WORDS) + plan.seqs() * 4;
    gpu.copy_in(plan.ptrs().token, &vec![0xABAB_ABABu32; words]).unwrap();
}

/// Public faults 8, 15 and 16: positions go by depth and cache rows by index, masks have any width, trees any sizes.
#[test]
fn fault_08_15_and_16_plans_are_those_of_the_host() {
    for gpu in gpus() {
        let op = Plan::new(&gpu).unwrap();
        let overflow = gpu.zeroed::<u32>("overflow", 1).unwrap();
        let mut n = Numbers(4);
        // Every width of a mask, ragged batches, padding of rows and sequences; and no real sequence at all.
        let batches: Vec<Vec<usize>> = [0, 1, 30, 31, 32, 63, 64, 127, 128, 256].iter().map(|&b| vec![b]).collect();
        for nodes in
            batches.into_iter().chain([vec![], vec![3, 7, 0], vec![5, 5, 5, 5, 5], vec![16, 0, 64, 1, 33, 2, 100]])
        {
            let (seqs, real) = (nodes.len() + n.below(3) as usize + 1, nodes.len());
            let forest: Vec<Tree> = nodes.iter().map(|&b| random_tree(&mut n, b, 15)).collect();
            let filled: usize = forest.iter().map(|t| t.rows() as usize).sum();
            let rows = filled + 1 + n.below(20) as usize;
            let kv: Vec<u32> = (0..seqs as u32).map(|s| s * 5000).collect();
            let start: Vec<u32> = (0..seqs).map(|_| n.below(4000) as u32).collect();
            for bucket in [
                Bucket { rows: filled.max(1) as u32, seqs: real.max(1) as u32 },
                Bucket { rows: rows as u32, seqs: seqs as u32 },
            ] {
                let mut host = RowPlan::new(&gpu, rows + 3, seqs + 1, SINK).unwrap();
                host.clear();
                for (s, tree) in forest.iter().enumerate() {
                    host.add(kv[s], start[s], tree.tokens(), Sight::Tree(tree.parents())).unwrap();
                }
                host.push(&gpu, bucket).unwrap();
                let device = RowPlan::new(&gpu, rows + 3, seqs + 1, SINK).unwrap();
                poison(&gpu, &device);
                let most = nodes.iter().copied().max().unwrap_or(0).max(1);
                let trees = upload(&gpu, &forest, seqs, most);
                let (kv, start) = (gpu.upload("kv", &kv).unwrap(), gpu.upload("start", &start).unwrap());
                let args = PlanArgs {
                    trees: trees.ptrs(),
                    stride: trees.stride(),
                    kv: kv.ptr(),
                    start: start.ptr(),
                    plan: device.ptrs(),
                    sink: SINK,
                    overflow: overflow.ptr(),
                };
                op.run(&gpu, bucket, &args).unwrap();
                let (want, _) = words(&gpu, host.ptrs(), rows + 3, seqs + 1, bucket);
                let (got, touched) = words(&gpu, device.ptrs(), rows + 3, seqs + 1, bucket);
                assert_eq!((got, touched), (want, 0), "{nodes:?} {bucket:?} on {}", gpu.info().name);
                assert_eq!(gpu.read_all(&overflow).unwrap(), [0]);
            }
        }
    }
}

/// Trees that do not fit are cut and flagged; nothing is written behind the bucket.
#[test]
fn a_plan_never_leaves_its_bucket() {
    for gpu in gpus() {
        let op = Plan::new(&gpu).unwrap();
        let overflow = gpu.zeroed::<u32>("overflow", 1).unwrap();
        let forest: Vec<Tree> = [9, 9, 9].iter().map(|&b| random_tree(&mut Numbers(b), b as usize, 4)).collect();
        let trees = upload(&gpu, &forest, 3, 9);
        let plan = RowPlan::new(&gpu, 40, 3, SINK).unwrap();
        poison(&gpu, &plan);
        let zero = gpu.zeroed::<u32>("zero", 3).unwrap();
        let bucket = Bucket { rows: 17, seqs: 3 };
        let args = PlanArgs {
            trees: trees.ptrs(),
            stride: trees.stride(),
            kv: zero.ptr(),
            start: zero.ptr(),
            plan: plan.ptrs(),
            sink: SINK,
            overflow: overflow.ptr(),
        };
        op.run(&gpu, bucket, &args).unwrap();
        let (got, touched) = words(&gpu, plan.ptrs(), 40, 3, bucket);
        assert_eq!((got[9].clone(), touched), (vec![10, 7, 0], 0));
        assert_eq!(gpu.read_all(&overflow).unwrap(), [1]);
    }
}

/// Path, emitted tokens, or the fault of one sequence.
type Verdict = Result<(Vec<u32>, Vec<u32>), WalkFault>;

/// The law: follow the token while a child carries it.
fn descend(tree: &Tree, mut token: impl FnMut(u32, u32) -> Result<u32, WalkFault>) -> Verdict {
    let (mut path, mut emitted) = (vec![0], Vec::new());
    loop {
        let node = path[path.len() - 1];
        let next = token(node, path.len() as u32 - 1)?;
        emitted.push(next);
        match tree.child(node, next) {
            Some(child) => path.push(child),
            None => return Ok((path, emitted)),
        }
    }
}

fn read(gpu: &Gpu, verdicts: &Verdicts, seqs: usize, steps: usize) -> Vec<Option<Verdict>> {
    let p = verdicts.ptrs();
    let of = |at, n| gpu.read::<u32>(at, n).unwrap();
    let (path, emitted) = (of(p.path, seqs * steps), of(p.emitted, seqs * steps));
    let (len, bonus, fault) = (of(p.len, seqs), of(p.bonus, seqs), of(p.fault, seqs * 2));
    let one = |s: usize| {
        let n = len[s] as usize;
        if let Some(fault) = WalkFault::of([fault[2 * s], fault[2 * s + 1]]) {
            assert_eq!((n, bonus[s]), (0, u32::MAX));
            return Some(Err(fault));
        }
        let part = |x: &[u32]| x[s * steps..][..n].to_vec();
        assert_eq!(bonus[s], if n == 0 { u32::MAX } else { emitted[s * steps + n - 1] });
        (n > 0).then(|| Ok((part(&path), part(&emitted))))
    };
    (0..seqs).map(one).collect()
}

/// A batch walked on the device, once by trees and once by the rows of the plan.
fn walk(
    gpu: &Gpu,
    forest: &[Tree],
    levels: usize,
    padding: usize,
    judged: Option<&[u32]>,
    truth: &[u32],
    bad: &[u32],
) -> Vec<Option<Verdict>> {
    let seqs = forest.len() + padding;
    let rows: usize = forest.iter().map(|t| t.rows() as usize).sum::<usize>() + 2;
    let mut plan = RowPlan::new(gpu, rows, seqs, SINK).unwrap();
    for (s, tree) in forest.iter().enumerate() {
        plan.add(0, 100 + s as u32, tree.tokens(), Sight::Tree(tree.parents())).unwrap();
    }
    plan.push(gpu, Bucket { rows: rows as u32, seqs: seqs as u32 }).unwrap();
    let trees = upload(gpu, forest, seqs, 64);
    let flat = |f: fn(&Tree) -> &[u32]| forest.iter().flat_map(|t| f(t).to_vec()).collect::<Vec<_>>();
    let (tokens, parents) =
        (gpu.upload("t", &flat(Tree::tokens)).unwrap(), gpu.upload("p", &flat(Tree::parents)).unwrap());
    let judged = judged.map(|j| gpu.upload("judged", j).unwrap());
    let truth = gpu.upload("truth", truth).unwrap();
    let bad = gpu.upload("bad", bad).unwrap();
    let op = Walk::new(gpu, levels).unwrap();
    let p = trees.ptrs();
    let [by_tree, by_row] =
        [(p.token, p.parent, trees.stride()), (tokens.ptr(), parents.ptr(), 0)].map(|(token, parent, stride)| {
            let verdicts = Verdicts::new(gpu, seqs, levels).unwrap();
            gpu.fill(verdicts.words(), 0xFF).unwrap();
            let args = WalkArgs {
                plan: plan.ptrs(),
                token,
                parent,
                stride,
                judged: judged.as_ref().map_or(Ptr::NULL, |j| j.ptr()),
                truth: truth.ptr(),
                draft_fault: bad.ptr(),
                out: verdicts.ptrs(),
            };
            op.run(gpu, seqs as u32, &args).unwrap();
            read(gpu, &verdicts, seqs, levels + 1)
        });
    assert_eq!(by_tree, by_row);
    by_tree
}

/// Public faults 10 and 21; the control for 10 judges by rows that are off by one.
#[test]
fn fault_10_and_21_walks_are_the_laws() {
    for gpu in gpus() {
        let mut n = Numbers(9);
        let mut noticed = false;
        // Public fault 21 first: batch 3, 7 rows, 2 steps.
        for (nodes, levels, seqs) in [(6, 2, 3), (6, 2, 3), (1, 1, 2), (64, 15, 5), (40, 7, 4), (33, 7, 3), (0, 3, 2)] {
            for round in 0..8 {
                let forest: Vec<Tree> = (0..seqs)
                    .map(|_| {
                        let b = n.below(nodes as u64 + 1) as usize;
                        random_tree(&mut n, if round == 0 { nodes } else { b }, levels)
                    })
                    .collect();
                // Mostly a child's token, so that walks go deep; unusable rows here and there.
                let mut judged = Vec::new();
                for tree in &forest {
                    for node in 0..tree.rows() {
                        let children: Vec<u32> = tree.children(node).collect();
                        let pick = n.below(children.len() as u64 + 1) as usize;
                        let token = children.get(pick).map_or(999, |&c| tree.tokens()[c as usize]);
                        judged.push(if n.below(10) == 0 { u32::MAX } else { token });
                    }
                }
                let steps = levels as usize + 1;
                let truth: Vec<u32> =
                    (0..(seqs + 1) * steps).map(|i| if i % 7 == 6 { u32::MAX } else { n.below(20) as u32 }).collect();
                let bad: Vec<u32> = (0..=seqs as u32).map(|s| if s == 1 && round == 3 { 2 } else { 0 }).collect();
                judged.extend([u32::MAX; 2]);
                let shifted: Vec<u32> = judged.iter().cycle().skip(1).take(judged.len()).copied().collect();
                let own = walk(&gpu, &forest, levels as usize, 1, Some(&judged), &truth, &bad);
                let next = walk(&gpu, &forest, levels as usize, 1, Some(&shifted), &truth, &bad);
                noticed |= own != next;
                for forced in [false, true] {
                    let got = walk(&gpu, &forest, levels as usize, 1, (!forced).then_some(&judged[..]), &truth, &bad);
                    let mut first = 0;
                    for (s, tree) in forest.iter().enumerate() {
                        let want = descend(tree, |node, depth| match (forced, bad[s]) {
                            (_, depth @ 1..) => Err(WalkFault::Draft(depth)),
                            (true, _) => Some(truth[s * steps + depth as usize])
                                .filter(|t| *t != u32::MAX)
                                .ok_or(WalkFault::TraceEnd(101 + s as u32 + depth)),
                            (false, _) => Some(judged[first + node as usize])
                                .filter(|t| *t != u32::MAX)
                                .ok_or(WalkFault::Logits(node)),
                        });
                        first += tree.rows() as usize;
                        assert_eq!(got[s], Some(want), "sequence {s}, round {round}, forced {forced}, {tree:?}");
                    }
                    assert_eq!(got[seqs], None, "padding");
                }
            }
        }
        assert!(noticed, "rows that are off by one change nothing");
    }
}

/// Public fault 7: a row that the walk does not reach may be unusable; one that it stands on may not.
#[test]
fn fault_07_only_visited_rows_raise_a_fault() {
    for gpu in gpus() {
        let tree = Tree::from_arrays(&[5, 7, 8, 9], &[0, 0, 0, 1], &[0; 4], &[0.0; 4]).unwrap();
        let one =
            |judged: [u32; 6]| walk(&gpu, std::slice::from_ref(&tree), 2, 0, Some(&judged), &[0; 3], &[0])[0].clone();
        let none = u32::MAX;
        assert_eq!(one([7, 3, none, none, 0, 0]), Some(Ok((vec![0, 1], vec![7, 3]))));
        assert_eq!(one([7, none, 1, 1, 0, 0]), Some(Err(WalkFault::Logits(1))));
        assert_eq!(one([none, 1, 1, 1, 0, 0]), Some(Err(WalkFault::Logits(0))));
    }
}
