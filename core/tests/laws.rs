//! Every law's output is the target's, proved by enumerating every draw, coin and sample on tiny vocabularies.
#![allow(clippy::unwrap_used)]

use treeline_core::testing::{Proof, Rule, Shape};
use treeline_core::{Error, Law, Sampling, TreePolicy};

const EXACT: f64 = 1e-12;

/// A maker of fresh policies of one shape.
fn fresh(shape: &Shape) -> impl Fn() -> Box<dyn TreePolicy> {
    let shape = shape.clone();
    move || Box::new(shape.clone())
}

/// Shapes of at most three levels, from a bare root to bushes with leaves at every depth.
fn shapes() -> Vec<Shape> {
    vec![
        Shape::new(&[], &[]),
        Shape::chain(1),
        Shape::chain(3),
        Shape::widths(&[2]),
        Shape::widths(&[2, 1]),
        Shape::widths(&[1, 2]),
        // The first child a leaf, the second a chain; and the other way round.
        Shape::new(&[0, 0, 2], &[0, 1, 0]),
        Shape::new(&[0, 1, 0], &[0, 0, 1]),
        Shape::new(&[0, 1, 1, 0, 4], &[0, 0, 1, 1, 0]),
    ]
}

/// Target and drafter of `vocab` tokens, with filters and holes in turn.
fn proofs(vocab: u32, shape: &Shape, seed: u32) -> Vec<Proof> {
    let plain = Proof::new(vocab, seed, shape.depth().max(1), shape.nodes());
    vec![
        Proof { sampling: Sampling { temperature: 0.6, top_k: 0, top_p: 0.8 }, holes: true, ..plain.clone() },
        Proof { sampling: Sampling { temperature: 1.3, top_k: 2, top_p: 1.0 }, ..plain.clone() },
        Proof { sampling: Sampling::GREEDY, ..plain.clone() },
        Proof { conditional: true, ..plain.clone() },
        plain,
    ]
}

/// Asserts that no shape of at most `nodes` nodes, over no model, biases the output.
fn lossless(rule: &Rule<'_>, vocabs: &[u32], nodes: u32) {
    for &vocab in vocabs {
        for (seed, shape) in (1..).zip(shapes()) {
            if shape.nodes() > nodes {
                continue;
            }
            for proof in proofs(vocab, &shape, seed) {
                let bias =
                    proof.bias(rule, &fresh(&shape)).unwrap_or_else(|e| panic!("{e}: {shape:?} under {proof:?}"));
                assert!(bias < EXACT, "bias {bias:e} of {shape:?} under {proof:?}");
            }
        }
    }
}

#[test]
fn sample_match_is_lossless() {
    lossless(&Rule::Law(Law::SampleMatch { seed: 0 }), &[2, 3, 4], 5);
}

#[test]
fn residual_with_replacement_is_lossless() {
    lossless(&Rule::Law(Law::Residual { replace: true, seed: 0 }), &[2, 3], 5);
    lossless(&Rule::Law(Law::Residual { replace: true, seed: 0 }), &[4], 3);
}

#[test]
fn residual_without_replacement_is_lossless() {
    lossless(&Rule::Law(Law::Residual { replace: false, seed: 0 }), &[2, 3], 5);
    lossless(&Rule::Law(Law::Residual { replace: false, seed: 0 }), &[4], 3);
}

#[test]
fn traversal_is_lossless() {
    lossless(&Rule::Law(Law::Traversal { seed: 0 }), &[2, 3], 5);
    lossless(&Rule::Law(Law::Traversal { seed: 0 }), &[4], 3);
}

/// It would be with replacement too; [`Law::draw`] asks for the draws that waste no row.
#[test]
fn traversal_with_replacement_is_lossless_and_accepts_less() {
    lossless(&Rule::TraversalReplaced, &[2, 3], 5);
    let proof = Proof::new(3, 5, 2, 4);
    let accepted = |rule: &Rule<'_>| proof.accepted(rule, &fresh(&Shape::widths(&[2, 1]))).unwrap();
    assert!(accepted(&Rule::Law(Law::Traversal { seed: 0 })) > accepted(&Rule::TraversalReplaced) + 1e-3);
}

/// A tree that was rebuilt after growing: the drafter knows its nodes by their old indices.
#[test]
fn rebuilt_trees_are_judged_by_the_rows_they_were_grown_from() {
    // Two children with a child each; then depth first, and then without the second branch's leaf.
    for order in [[1, 3, 2, 4].as_slice(), &[1, 3, 2], &[1, 2, 4]] {
        let shape = Shape::widths(&[2, 1]).keeping(order);
        for law in [Law::Residual { replace: false, seed: 0 }, Law::Traversal { seed: 0 }, Law::SampleMatch { seed: 0 }]
        {
            for conditional in [false, true] {
                let proof = Proof { conditional, ..Proof::new(3, 2, 2, 4) };
                let bias = proof.bias(&Rule::Law(law), &fresh(&shape)).unwrap();
                assert!(bias < EXACT, "{}, {order:?}, conditional {conditional}: {bias:e}", law.kind());
            }
        }
    }
}

/// The greedy law gives the argmax path: the target at temperature 0, whatever the request asks for.
#[test]
fn greedy_is_the_target_at_temperature_0() {
    for shape in shapes() {
        let proof = Proof { sampling: Sampling::GREEDY, ..Proof::new(4, 3, shape.depth().max(1), shape.nodes()) };
        assert_eq!(proof.bias(&Rule::Law(Law::Greedy), &fresh(&shape)), Ok(0.0));
        let warm = Proof { sampling: Sampling::at(1.0), ..proof };
        assert!(warm.bias(&Rule::Law(Law::Greedy), &fresh(&shape)).unwrap() > 0.1);
    }
}

/// Negative control of the proofs: a published form of traversal's update is biased, and they say so.
#[test]
fn the_known_biased_rule_fails_the_same_proof() {
    let shape = Shape::widths(&[2, 1]);
    let proof = Proof::new(3, 1, 2, 4);
    let bias = proof.bias(&Rule::BiasedTraversal, &fresh(&shape)).unwrap();
    assert!(bias > 1e-3, "{bias:e}");
}

/// A lattice whose rows are drawn once per level serves residual laws, but not traversal: refused, and biased if forced.
#[test]
fn shared_draws_bias_traversal_only() {
    let shape = Shape::widths(&[2, 1]);
    let proof = Proof { shared_draws: true, ..Proof::new(3, 1, 2, 4) };
    for replace in [true, false] {
        let bias = proof.bias(&Rule::Law(Law::Residual { replace, seed: 0 }), &fresh(&shape)).unwrap();
        assert!(bias < EXACT, "{bias:e}");
    }
    let refused = proof.bias(&Rule::Law(Law::Traversal { seed: 0 }), &fresh(&shape));
    assert!(matches!(&refused, Err(Error::Refused(why)) if why.contains("draw per node")), "{refused:?}");
    let forced = proof.bias(&Rule::UncheckedTraversal, &fresh(&shape)).unwrap();
    assert!(forced > 1e-3, "{forced:e}");
    // One parent per level: nothing is shared.
    let chain = Shape::chain(3);
    let chained = Proof { shared_draws: true, ..Proof::new(3, 1, 3, 3) };
    assert!(chained.bias(&Rule::Law(Law::Traversal { seed: 0 }), &fresh(&chain)).unwrap() < EXACT);
}

/// Traversal accepts at least as much as residual rejection on the same draws, and more where paths are deep.
#[test]
fn traversal_accepts_more_than_residual() {
    let accepted = |rule: &Rule<'_>, shape: Shape| {
        let proof = Proof::new(3, 5, shape.depth(), shape.nodes());
        proof.accepted(rule, &fresh(&shape)).unwrap()
    };
    for shape in [Shape::chain(3), Shape::widths(&[2, 1]), Shape::widths(&[1, 2])] {
        let traversal = accepted(&Rule::Law(Law::Traversal { seed: 0 }), shape.clone());
        let residual = accepted(&Rule::Law(Law::Residual { replace: false, seed: 0 }), shape.clone());
        assert!(traversal > residual + 1e-3, "{traversal} against {residual} for {shape:?}");
    }
}
