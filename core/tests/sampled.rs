//! The keyed stream itself: what the scripted engine really samples follows the target's distribution (χ²), and seeded
//! faults are noticed.
#![allow(clippy::unwrap_used)]

use statrs::distribution::{ChiSquared, ContinuousCDF};
use treeline_core::testing::{MockEngine, Script, Seeded, Shape, Tiny};
use treeline_core::{Law, Request, RunSetup, Sampling, run};

const VOCAB: u32 = 4;
/// Tokens of a response that are looked at.
const LOOK: u32 = 4;

fn script(seeded: Seeded) -> Script {
    let script = Script::new(VOCAB);
    Script { target: Tiny { spread: 1.2, ..script.target }, depth: 3, seed: 9, seeded, noise: 1.5, ..script }
}

/// p-value of the first tokens of `requests` responses against the target's own distribution.
fn p_value(law: &Law<'_>, script: &Script, shape: &Shape, requests: u64) -> f64 {
    let sampling = Sampling { temperature: 0.8, top_k: 0, top_p: 0.95 };
    let prompt = vec![1, 3, 2];
    let list: Vec<Request> =
        (0..requests).map(|id| Request { id, prompt: prompt.clone(), max_new: 6, eos: vec![], sampling }).collect();
    let setup = RunSetup { budget: shape.nodes(), concurrency: 4, law, cost: None };
    let mut engine = MockEngine::new(script.clone());
    let responses = run(&mut engine, &mut shape.clone(), &list, &setup, &mut |_| {}).unwrap();
    let mut counts = vec![0.0; (VOCAB as usize).pow(LOOK)];
    for response in &responses {
        let look = &response.tokens[..LOOK as usize];
        counts[look.iter().fold(0, |i, &t| i * VOCAB as usize + t as usize)] += 1.0;
    }
    let mut p = Vec::new();
    let expected: Vec<f64> = (0..counts.len())
        .map(|cell| {
            let mut context = prompt.clone();
            (0..LOOK).rev().fold(1.0, |weight, digit| {
                let token = cell / (VOCAB as usize).pow(digit) % VOCAB as usize;
                let logits = script.target.logits(&context);
                treeline_core::sampling::target_dist(&logits, &sampling, 0, &mut p).unwrap();
                context.push(token as u32);
                weight * p[token]
            }) * requests as f64
        })
        .collect();
    // Cells below an expected count of 10 are pooled; a count where none may be is beyond any p.
    let (mut chi, mut cells, mut pool) = (0.0, 0, (0.0, 0.0));
    for (&count, &expected) in counts.iter().zip(&expected) {
        if expected == 0.0 {
            assert_eq!(count, 0.0, "the filter excludes this sequence");
        } else if expected < 10.0 {
            pool = (pool.0 + count, pool.1 + expected);
        } else {
            chi += (count - expected).powi(2) / expected;
            cells += 1;
        }
    }
    if pool.1 >= 10.0 {
        chi += (pool.0 - pool.1).powi(2) / pool.1;
        cells += 1;
    }
    assert!(cells > 40, "only {cells} cells are full enough");
    ChiSquared::new(f64::from(cells - 1)).unwrap().sf(chi)
}

fn bush() -> Shape {
    Shape::widths(&[2, 2, 1])
}

#[test]
fn sampled_output_follows_the_target_under_every_law() {
    for law in [
        Law::SampleMatch { seed: 9 },
        Law::Residual { replace: true, seed: 9 },
        Law::Residual { replace: false, seed: 9 },
        Law::Traversal { seed: 9 },
    ] {
        for conditional in [false, true] {
            let p = p_value(&law, &Script { conditional, ..script(Seeded::Nothing) }, &bush(), 20_000);
            assert!(p > 1e-3, "{}, conditional {conditional}: p = {p:e}", law.kind());
        }
    }
}

/// One key for draft and residual draws is measurably biased; the purposes of the stream keep them apart.
#[test]
fn one_key_for_draw_and_residual_is_noticed() {
    let law = Law::Residual { replace: false, seed: 9 };
    let with = |seeded| Script { noise: 3.0, ..script(seeded) };
    let p = p_value(&law, &with(Seeded::OneKey), &Shape::chain(3), 40_000);
    assert!(p < 1e-9, "p = {p:e}");
    let p = p_value(&law, &with(Seeded::Nothing), &Shape::chain(3), 40_000);
    assert!(p > 1e-3, "p = {p:e}");
}

/// Public fault 23: a sampling request that is silently run greedy.
#[test]
fn fault_23_sampling_run_greedy_is_noticed() {
    let p = p_value(&Law::SampleMatch { seed: 9 }, &script(Seeded::Greedy), &bush(), 2_000);
    assert!(p < 1e-9, "p = {p:e}");
}
