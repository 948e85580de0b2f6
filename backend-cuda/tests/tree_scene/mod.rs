//! Random drafts for a batch, grown by the CPU's policies and by the device's programs.

use std::sync::Arc;
use treeline_core::draft::Candidate;
use treeline_core::{
    Ask, Batch, Caps, DraftView, Draw, Fault, Forest, Grow, Limits, Program, Round, Sampling, Seq, Tree, TreePolicy,
};
use treeline_cuda::device::{Buffer, Gpu};
use treeline_cuda::ops::topk::LatticePtr;
use treeline_cuda::ops::tree::{self, TreeArgs, TreeOp, TreeSeqs, TreeSizes, Trees};
use treeline_cuda::testing::Numbers;

/// How log-probabilities are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All different, at most 0.
    Smooth,
    /// Few values: ties everywhere.
    Coarse,
    /// Very different sizes, so that sums round to ties.
    Rounding,
    /// Also above 0, as rounding can give.
    Positive,
}

/// One batch: limits, caps and, per sequence and level, a row of candidates (`Err` = an unusable row).
pub struct Scene {
    pub sizes: TreeSizes,
    pub caps: Vec<Caps>,
    pub rows: Vec<Vec<Result<Vec<Candidate>, ()>>>,
    pub roots: Vec<u32>,
}

impl Scene {
    /// A random one; `short` makes rows end early or in −∞, `bad` makes some unusable.
    pub fn new(n: &mut Numbers, sizes: TreeSizes, kind: Kind, short: bool, bad: bool) -> Self {
        let TreeSizes { seqs, levels, width, nodes } = sizes;
        let mut caps = Vec::new();
        let mut rows = Vec::new();
        for _ in 0..seqs {
            let most = if n.below(3) == 0 { n.below(nodes as u64 + 1) as u32 } else { nodes as u32 };
            let depth = if n.below(3) == 0 { n.below(levels as u64 + 1) as u32 } else { levels as u32 };
            caps.push(Caps { nodes: if depth == 0 { 0 } else { most }, depth: depth.min(most) });
            let row = |n: &mut Numbers| {
                if bad && n.below(12) == 0 {
                    return Err(());
                }
                let len = if short && n.below(3) == 0 { n.below(width as u64 + 1) as usize } else { width };
                let mut logp: Vec<f32> = (0..len).map(|_| value(n, kind)).collect();
                if short && n.below(4) == 0 {
                    let from = n.below(len as u64 + 1) as usize;
                    logp[from..].fill(f32::NEG_INFINITY);
                }
                logp.sort_by(|a, b| b.total_cmp(a));
                let first = n.below(1000) as u32;
                let token = |rank: usize| first + rank as u32 * 7;
                Ok(logp.into_iter().enumerate().map(|(r, logp)| Candidate { token: token(r), logp }).collect())
            };
            rows.push((0..levels).map(|_| row(n)).collect());
        }
        let roots = (0..seqs).map(|_| n.below(1 << 17) as u32).collect();
        Self { sizes, caps, rows, roots }
    }

    pub fn limits(&self) -> Limits {
        let TreeSizes { seqs, levels, width, nodes } = self.sizes;
        Limits { budget: nodes as u32, depth: levels as u32, width: width as u32, concurrency: seqs as u32 }
    }

    /// The trees that `policy` grows, and the levels and ranks that it asked for.
    pub fn host(&self, policy: &mut dyn TreePolicy) -> (Forest, Vec<Ask>) {
        let limits = self.limits();
        let seqs = self.roots.iter().enumerate().map(|(i, &root)| Seq {
            slot: i as u32,
            request: i as u64,
            index: i,
            start: 10,
            root,
            left: 100,
            eos: Arc::from([]),
            sampling: Sampling::GREEDY,
            round: 0,
        });
        let batch = Batch { seqs: seqs.collect() };
        let mut forest = Forest::default();
        forest.reset(&batch, &self.caps);
        let round =
            Round { index: 0, batch: &batch, caps: &self.caps, limits: &limits, draw: Draw::Ranked, cost: None };
        let mut asks = Vec::new();
        policy.ask(&round, &mut asks);
        let mut lattice = treeline_core::draft::Lattice::new(0);
        for ((ask, cap), rows) in asks.iter_mut().zip(&self.caps).zip(&self.rows) {
            ask.depth = ask.depth.min(cap.depth);
            ask.width = ask.width.min(limits.width);
            lattice.begin_seq();
            for (row, depth) in rows[..ask.depth as usize].iter().zip(1..) {
                match row {
                    Ok(row) => lattice.push_row(&row[..row.len().min(ask.width as usize)], true, true),
                    Err(()) => {
                        lattice.push_row(&[], true, true);
                        lattice.fail(Fault::Draft { depth, why: String::new() });
                    }
                }
            }
        }
        for seq in 0..forest.len() {
            if let Some(fault) = lattice.fault(seq as u32) {
                forest.fail(seq, fault);
            }
        }
        let mut wave = Vec::new();
        assert_eq!(policy.grow(&round, &lattice, &mut forest, &mut wave), Grow::Done);
        (forest, asks)
    }

    /// The drafts on the device, what the policy did not ask for included, and garbage behind the rows' ends.
    pub fn upload(&self, gpu: &Gpu, nodes: &[u32], levels: &[u32]) -> Uploaded {
        let TreeSizes { width, .. } = self.sizes;
        let (mut token, mut logp, mut count, mut fault) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for row in self.rows.iter().flatten() {
            let listed: &[Candidate] = row.as_ref().map_or(&[], |r| r);
            token.extend(listed.iter().map(|c| c.token).chain(std::iter::repeat_n(9, width - listed.len())));
            logp.extend(listed.iter().map(|c| c.logp).chain(std::iter::repeat_n(1.0f32, width - listed.len())));
            count.push(listed.len() as u32);
            fault.push(u32::from(row.is_err()));
        }
        Uploaded {
            token: gpu.upload("token", &token).unwrap(),
            logp: gpu.upload("logp", &logp).unwrap(),
            words: [&count, &fault, &self.roots[..], nodes, levels].map(|x| gpu.upload("words", x).unwrap()),
        }
    }

    /// The trees that `op` grows, as the host's type; `nodes` limits each.
    pub fn device(&self, gpu: &Gpu, op: &TreeOp, nodes: &[u32], levels: &[u32]) -> Vec<(Tree, u32)> {
        let lattice = self.upload(gpu, nodes, levels);
        let trees = Trees::new(gpu, self.sizes.seqs, self.sizes.nodes).unwrap();
        gpu.fill(trees.words(), 0xFF).unwrap();
        gpu.fill(trees.scores(), 0xFF).unwrap();
        let seqs = self.sizes.seqs as u32;
        op.run(gpu, seqs, &lattice.args(&trees)).unwrap();
        read(gpu, &trees, seqs, nodes, levels)
    }
}

fn value(n: &mut Numbers, kind: Kind) -> f32 {
    match kind {
        Kind::Smooth => -6.0 * n.unit().abs(),
        Kind::Coarse => -(n.below(4) as f32) * 0.5,
        Kind::Rounding => -[1e9f32, 0.5, 1e-9, 3e-10, 1.0 / 3.0][n.below(5) as usize] * n.below(4) as f32,
        Kind::Positive => 0.2 - n.below(6) as f32 * 0.25,
    }
}

pub struct Uploaded {
    token: Buffer<u32>,
    logp: Buffer<f32>,
    words: [Buffer<u32>; 5],
}

impl Uploaded {
    pub fn args(&self, trees: &Trees) -> TreeArgs {
        let [count, fault, root, nodes, levels] = self.words.each_ref().map(Buffer::ptr);
        TreeArgs {
            seqs: TreeSeqs { root, nodes, levels },
            lattice: LatticePtr { token: self.token.ptr(), logp: self.logp.ptr(), count, fault },
            trees: trees.ptrs(),
        }
    }
}

/// Trees from the device with the limits they were grown under, and the depth of the draft's fault.
fn read(gpu: &Gpu, trees: &Trees, seqs: u32, nodes: &[u32], levels: &[u32]) -> Vec<(Tree, u32)> {
    let p = trees.ptrs();
    let (n, stride) = (seqs as usize * trees.stride() as usize, trees.stride() as usize);
    let [token, parent, depth, rank] = [p.token, p.parent, p.depth, p.rank].map(|at| gpu.read::<u32>(at, n).unwrap());
    let score: Vec<f64> = gpu.read(p.score, n).unwrap();
    let rows: Vec<u32> = gpu.read(p.rows, seqs as usize).unwrap();
    let fault: Vec<u32> = gpu.read(p.fault, seqs as usize).unwrap();
    let tree = |s: usize| {
        let of = |i: u32| s * stride + i as usize;
        let mut tree = Tree::new(token[of(0)], nodes[s], levels[s]);
        assert_eq!((parent[of(0)], depth[of(0)], rank[of(0)], score[of(0)].to_bits()), (0, 0, 0, 0), "root of {s}");
        for i in 1..rows[s] {
            tree.push(parent[of(i)], token[of(i)], rank[of(i)], score[of(i)]).unwrap();
            assert_eq!(tree.depths()[i as usize], depth[of(i)], "depth of node {i} of {s}");
        }
        (tree, fault[s])
    };
    (0..seqs as usize).map(tree).collect()
}

/// Compares bit for bit: everything but the limits.
pub fn assert_same(got: &Tree, want: &Tree, what: &str) {
    let bits = |t: &Tree| t.scores().iter().map(|s| s.to_bits()).collect::<Vec<_>>();
    assert_eq!(got.tokens(), want.tokens(), "tokens, {what}");
    assert_eq!(got.parents(), want.parents(), "parents, {what}");
    assert_eq!(got.ranks(), want.ranks(), "ranks, {what}");
    assert_eq!(bits(got), bits(want), "scores, {what}");
}

/// Grows `scene` by the policy and by its program and compares all trees.
pub fn compare(gpu: &Gpu, scene: &Scene, policy: &mut dyn TreePolicy, program: &Program, op: &TreeOp, what: &str) {
    let (forest, asks) = scene.host(policy);
    let (nodes, levels): (Vec<u32>, Vec<u32>) =
        scene.caps.iter().zip(&asks).map(|(cap, ask)| (cap.nodes, ask.depth)).unzip();
    for (cap, ask) in scene.caps.iter().zip(&asks) {
        let (depth, width) = tree::asks(program, cap.nodes, cap.depth, scene.limits().width);
        assert_eq!((depth.min(cap.depth), width), (ask.depth, ask.width), "{what}: {cap:?}");
    }
    for (s, (got, fault)) in scene.device(gpu, op, &nodes, &levels).iter().enumerate() {
        let at = format!("{what}, sequence {s} of {:?}, {:?}", scene.sizes, scene.caps[s]);
        let want = match forest.fault(s) {
            Some(Fault::Draft { depth, .. }) => *depth,
            None => 0,
            other => panic!("{at}: {other:?}"),
        };
        assert_eq!(*fault, want, "{at}");
        assert_same(got, forest.tree(s), &at);
    }
}
