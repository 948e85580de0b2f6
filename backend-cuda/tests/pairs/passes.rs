//! Single passes of an engine: sequences behind prompts, given trees, and what the target says of them.

use super::Noise;
use treeline_core::{Admit, Batch, Caps, Conditional, Engine, Forest, Law, Request, Sampling, Seq, Verifier};
use treeline_cuda::engine::{CudaEngine, CudaVerdict};

/// Tokens and parents, root first.
pub type Rows = (Vec<u32>, Vec<u32>);

/// Takes a prompt into a slot and returns the running sequence with the given root.
pub fn admit(engine: &mut CudaEngine, slot: u32, prompt: &[u32], root: u32, sampling: Sampling) -> Seq {
    let id = u64::from(slot) + 100;
    let request = Request { id, prompt: prompt.to_vec(), max_new: 1000, eos: Vec::new(), sampling };
    loop {
        if let Admit::Done { start, .. } = engine.admit(slot, &request, &Law::Greedy).unwrap() {
            let index = slot as usize;
            return Seq { slot, request: id, index, start, root, left: 1000, eos: [].into(), sampling, round: 0 };
        }
    }
}

/// A forest of given trees.
pub fn forest(batch: &Batch, trees: &[Rows]) -> Forest {
    let mut forest = Forest::default();
    let caps: Vec<Caps> = trees.iter().map(|(t, _)| Caps { nodes: t.len() as u32, depth: t.len() as u32 }).collect();
    forest.reset(batch, &caps);
    for (at, (tokens, parents)) in trees.iter().enumerate() {
        for node in 1..tokens.len() {
            forest.tree_mut(at).push(parents[node], tokens[node], 0, 0.0).unwrap();
        }
    }
    forest
}

/// What a pass says: bits of all its logits, and what each sequence got.
pub type Pass = (Vec<Vec<u32>>, CudaVerdict);

/// One verify pass; nothing is committed.
pub fn verify(engine: &mut CudaEngine, batch: &Batch, trees: &[Rows], law: &Law<'_>) -> Pass {
    let forest = forest(batch, trees);
    let drafts = Conditional::new(batch.len(), 0);
    let (_, verifier, _) = engine.parts();
    verifier.poison().unwrap();
    let verdict = verifier.verify(batch, &forest, &drafts, law).unwrap();
    let logits = (0..forest.rows()).map(|row| verifier.logits(row).unwrap()).collect::<Vec<_>>();
    let bits = logits.into_iter().map(|row| row.into_iter().map(f32::to_bits).collect()).collect();
    (bits, verdict)
}

/// Trees of these numbers of rows.
pub fn trees(noise: &mut Noise, rows: &[usize]) -> Vec<Rows> {
    rows.iter().map(|&n| (noise.tokens(n), noise.parents(n, 6))).collect()
}

/// Sequences behind prompts of different lengths.
pub fn batch(engine: &mut CudaEngine, noise: &mut Noise, seqs: u32) -> Batch {
    let seqs = (0..seqs).map(|slot| {
        let len = 3 + noise.below(30) as usize;
        let prompt = noise.tokens(len);
        admit(engine, slot, &prompt, 1, Sampling::GREEDY)
    });
    Batch { seqs: seqs.collect() }
}

/// The batch with the trees' roots.
pub fn rooted(batch: &Batch, trees: &[Rows]) -> Batch {
    let mut batch = batch.clone();
    batch.seqs.iter_mut().zip(trees).for_each(|(seq, tree)| seq.root = tree.0[0]);
    batch
}
