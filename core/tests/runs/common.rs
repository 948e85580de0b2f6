//! What the tests of whole runs share: requests, the plain reference, and runs over the scripted engine.

use treeline_core::sampling::target_token;
use treeline_core::stream::Key;
use treeline_core::testing::{MockEngine, Script, Shape};
use treeline_core::{Entry, Law, Request, Response, RunSetup, Sampling, run};

/// A vocabulary in which drafts hit and miss.
pub const VOCAB: u32 = 24;

/// `count` requests with prompts of different lengths.
pub fn requests(count: u64, max_new: u32, sampling: Sampling) -> Vec<Request> {
    (0..count)
        .map(|id| Request {
            id,
            prompt: (0..3 + id as u32 * 4 % 9).map(|i| (i * 7 + id as u32 * 5) % VOCAB).collect(),
            max_new,
            eos: vec![],
            sampling,
        })
        .collect()
}

/// What plain decoding emits, from the model alone: no tree, no cache, no batch.
pub fn plain(script: &Script, request: &Request, seed: u64) -> Vec<u32> {
    let (mut tokens, mut scratch) = (request.prompt.clone(), Vec::new());
    let first = tokens.len();
    while tokens.len() < first + request.max_new as usize && tokens.len() <= script.context as usize {
        let key = Key::target(seed, request.id, tokens.len() as u32);
        let logits = script.target.logits(&tokens);
        let token = target_token(&logits, &request.sampling, key, 0, &mut scratch).unwrap();
        tokens.push(token);
        if request.eos.contains(&token) {
            break;
        }
    }
    tokens.split_off(first)
}

/// Runs to the end; returns the engine, the responses and every entry of every round.
pub fn play(
    script: &Script,
    shape: &Shape,
    list: &[Request],
    law: &Law<'_>,
    budget: u32,
    concurrency: u32,
) -> (MockEngine, Vec<Response>, Vec<Entry>) {
    let mut engine = MockEngine::new(script.clone());
    let mut entries = Vec::new();
    let setup = RunSetup { budget, concurrency, law, cost: None };
    let responses = run(&mut engine, &mut shape.clone(), list, &setup, &mut |view| {
        for (entry, (seq, tree)) in view.log.entries.iter().zip(view.batch.iter().zip(view.forest.trees())) {
            assert_eq!((entry.request, entry.rows), (seq.request, tree.rows()));
            assert!(seq.start + tree.rows() <= script.context, "rows {} at {}", tree.rows(), seq.start);
            assert!(tree.depth() < seq.left.max(1), "depth {} with {} left", tree.depth(), seq.left);
        }
        assert!(view.batch.seqs.windows(2).all(|w| w[0].slot < w[1].slot));
        entries.extend_from_slice(&view.log.entries);
    })
    .unwrap();
    (engine, responses, entries)
}

/// Trees of every kind that core's tests run over the engine.
pub fn shapes() -> Vec<Shape> {
    vec![
        Shape::chain(7),
        Shape::widths(&[2, 2, 1]),
        Shape::widths(&[4, 1, 1]),
        Shape::widths(&[6, 6]),
        Shape::new(&[0, 0, 2, 3, 0, 5, 1], &[0, 1, 0, 0, 2, 0, 0]),
    ]
}

/// Whether all of `shapes` at concurrency 1, 3 and 4 emit exactly what plain decoding emits.
pub fn exact(script: &Script, law: &Law<'_>, sampling: Sampling) -> bool {
    let list = requests(6, 30, sampling);
    let expected: Vec<Vec<u32>> = list.iter().map(|r| plain(script, r, law.seed())).collect();
    shapes().iter().all(|shape| {
        [1, 3, 4].iter().all(|&concurrency| {
            let (_, responses, _) = play(script, shape, &list, law, shape.nodes(), concurrency);
            responses.iter().map(|r| &r.tokens).eq(&expected)
        })
    })
}
