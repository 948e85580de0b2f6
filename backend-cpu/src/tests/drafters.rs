//! Conditional drafters: their rows are those of the whole path, and the cache follows the target's.

use super::{Noise, admit, fixture, forest};
use crate::{CpuEngine, CpuPair, DrafterSource, EngineSettings, Scorer};
use std::sync::Arc;
use treeline_core::{Ask, Batch, DraftView, Drafter, Draw, Engine, Forest, Law, NodeRef, RoundLog, Sampling, Verifier};

fn pairs() -> [CpuPair; 2] {
    let llama = DrafterSource::Autoregressive { dir: fixture("llama"), depth: 4 };
    [llama, DrafterSource::NGram { order: 3, depth: 4 }].map(|s| CpuPair::load(&fixture("qwen3"), &s).unwrap())
}

const ASK: [Ask; 1] = [Ask { depth: 4, width: 64, draw: Draw::Ranked }];

/// Log-probability bits of a node's children by token.
fn row(drafts: &impl DraftView, node: u32, depth: u32) -> Vec<u32> {
    let mut out = vec![0; 64];
    for c in drafts.children(NodeRef { seq: 0, node, depth }) {
        out[c.token as usize] = c.logp.to_bits();
    }
    out
}

/// Drafts behind the batch's root, with every node of `forest` expanded in two waves: first some of the deepest nodes,
/// whose ancestors have to be run with them, then all.
fn expanded(engine: &mut CpuEngine, batch: &Batch, forest: &Forest) -> Vec<Vec<u32>> {
    let (drafter, _, features) = engine.parts();
    let mut drafts = drafter.draft(batch, features, &ASK).unwrap();
    let nodes = |from: usize| -> Vec<NodeRef> {
        let depths = forest.tree(0).depths().iter().enumerate().skip(from);
        depths.map(|(n, &depth)| NodeRef { seq: 0, node: n as u32, depth }).filter(|n| n.depth < 4).collect()
    };
    drafter.expand(&mut drafts, batch, forest, &nodes(6)).unwrap();
    drafter.expand(&mut drafts, batch, forest, &nodes(1)).unwrap();
    let all = std::iter::once(NodeRef { seq: 0, node: 0, depth: 0 }).chain(nodes(1));
    all.map(|n| row(&drafts, n.node, n.depth)).collect()
}

fn tree(root: u32, noise: &mut Noise) -> (Vec<u32>, Vec<u32>) {
    let mut tokens = noise.tokens(9);
    tokens[0] = root;
    (tokens, vec![0, 0, 0, 1, 1, 3, 3, 5, 2])
}

#[test]
fn rows_of_the_autoregressive_drafter_are_those_of_the_path() {
    let [pair, _] = pairs();
    let mut engine = pair.engine(EngineSettings { slots: 1, context: 200, chunk: 16 }).unwrap();
    let mut noise = Noise(4);
    let prompt = noise.tokens(30);
    let batch = Batch { seqs: vec![admit(&mut engine, 0, &prompt, None, Sampling::GREEDY)] };
    let (tokens, parents) = tree(batch.seqs[0].root, &mut noise);
    let forest = forest(&batch, &[(tokens.clone(), parents.clone())]);
    let rows = expanded(&mut engine, &batch, &forest);
    let mut scorer = Scorer::new(super::model("llama"));
    scorer.extend(&prompt);
    let logits = scorer.tree(&tokens, &parents);
    let shallow: Vec<usize> = (0..9).filter(|&n| forest.tree(0).depths()[n] < 4).collect();
    assert_eq!(shallow.len(), rows.len());
    for (node, row) in shallow.into_iter().zip(rows) {
        let mut logp = vec![0.0; 64];
        crate::kernel::log_softmax(logits.row(node).as_slice().unwrap(), &mut logp);
        assert_eq!(row, logp.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), "node {node}");
    }
}

/// Some rounds, with accepted paths of several lengths and rounds in which nothing was drafted, against a fresh engine.
#[test]
fn drafts_after_many_rounds_equal_those_of_a_fresh_prefill() {
    for pair in pairs() {
        let settings = EngineSettings { slots: 2, context: 200, chunk: 16 };
        let mut engine = pair.engine(settings).unwrap();
        let mut noise = Noise(8);
        let mut history = noise.tokens(12);
        let mut batch = Batch { seqs: vec![admit(&mut engine, 1, &history, None, Sampling::GREEDY)] };
        let mut accepted = 0;
        for round in 0..14u32 {
            let root = batch.seqs[0].root;
            let (mut tokens, parents) = tree(root, &mut noise);
            // The target's own choice along 1, 3, 5 for the first levels.
            let mut scorer = Scorer::new(Arc::clone(pair.target()));
            scorer.extend(&history);
            let mut token = root;
            for node in [1, 3, 5].into_iter().take(round as usize % 4) {
                let logits = scorer.extend(&[token]);
                token = treeline_core::sampling::argmax(logits.row(0).as_slice().unwrap(), 0).unwrap();
                tokens[node] = token;
            }
            let forest = forest(&batch, &[(tokens, parents)]);
            if round % 5 != 4 {
                let used = expanded(&mut engine, &batch, &forest);
                let mut other = pair.engine(settings).unwrap();
                let seq = admit(&mut other, 1, &history, Some(root), Sampling::GREEDY);
                let fresh = expanded(&mut other, &Batch { seqs: vec![seq] }, &forest);
                assert_eq!(used, fresh, "round {round}, {}", pair.describe_drafter());
            }
            let (drafter, verifier, features) = engine.parts();
            let none = drafter.draft(&batch, features, &[Ask { depth: 0, ..ASK[0] }]).unwrap();
            let verdict = verifier.verify(&batch, &forest, &none, &Law::Greedy).unwrap();
            let mut log = RoundLog::default();
            verifier.commit(&batch, &forest, verdict, features, &mut log).unwrap();
            let step = log.results.remove(0).unwrap();
            accepted += step.accepted();
            history.push(root);
            history.extend(&step.emitted[..step.emitted.len() - 1]);
            let seq = &mut batch.seqs[0];
            (seq.start, seq.root, seq.round) = (history.len() as u32, step.last().unwrap(), seq.round + 1);
        }
        assert!(accepted >= 15, "only {accepted} drafts were accepted");
    }
}

#[test]
fn draws_come_from_the_full_distribution_and_do_not_depend_on_the_batch() {
    for pair in pairs() {
        let draw = |neighbours: u32| {
            let mut engine = pair.engine(EngineSettings { slots: 8, context: 64, chunk: 16 }).unwrap();
            let seqs = (0..=neighbours).map(|i| admit(&mut engine, i, &[1, 2, 1, 2, 1], Some(2), Sampling::at(1.0)));
            let batch = Batch { seqs: seqs.collect() };
            let ask = vec![Ask { depth: 2, width: 3, draw: Draw::Sampled { replace: false } }; batch.len()];
            let (drafter, _, features) = engine.parts();
            let drafts = drafter.draft(&batch, features, &ask).unwrap();
            let at = NodeRef { seq: 0, node: 0, depth: 0 };
            let sum: f32 = drafts.dist(at).unwrap().iter().sum();
            assert!((sum - 1.0).abs() < 1e-5, "{sum}");
            drafts.children(at).to_vec()
        };
        assert_eq!(draw(0), draw(5));
        assert_eq!(draw(0).len(), 3);
    }
}
