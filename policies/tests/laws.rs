//! Every law that admits a policy gives exactly the target's distribution with that policy's trees: all draws, coins and
//! samples are enumerated on tiny vocabularies.

use serde_json::json;
use treeline_core::testing::{Proof, Rule};
use treeline_core::{Ask, CostCurve, DraftView, Forest, Grow, Law, Limits, Needs, NodeRef, Round, TreePolicy};
use treeline_policies::Registry;

const EXACT: f64 = 1e-12;

/// A policy with a step cost at hand, which the proofs do not have.
struct Priced {
    inner: Box<dyn TreePolicy>,
    cost: CostCurve,
}

impl TreePolicy for Priced {
    fn kind(&self) -> &str {
        self.inner.kind()
    }

    fn needs(&self, limits: &Limits) -> Needs {
        Needs { cost: false, ..self.inner.needs(limits) }
    }

    fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<Ask>) {
        self.inner.ask(round, ask);
    }

    fn grow(
        &mut self,
        round: &Round<'_>,
        drafts: &dyn DraftView,
        forest: &mut Forest,
        wave: &mut Vec<NodeRef>,
    ) -> Grow {
        self.inner.grow(&Round { cost: Some(&self.cost), ..*round }, drafts, forest, wave)
    }
}

fn bias(kind: &str, params: &serde_json::Value, proof: &Proof, rule: &Rule<'_>) -> f64 {
    let limits = Limits { budget: proof.budget, depth: proof.depth, width: proof.target.vocab, concurrency: 1 };
    let make = || -> Box<dyn TreePolicy> {
        let inner = Registry::builtin().build(kind, params, &limits).unwrap();
        Box::new(Priced { inner, cost: CostCurve::new(vec![1, 2, 9], vec![1.0, 1.1, 1.4]).unwrap() })
    };
    // A bare root would be lossless too and prove nothing.
    assert!(proof.accepted(rule, &make).unwrap() > 0.0, "{kind} {params}: nothing was ever accepted");
    proof.bias(rule, &make).unwrap_or_else(|e| panic!("{kind} {params}: {e}"))
}

/// Deterministic candidates, one target sample per node: every policy.
#[test]
fn sample_match_is_lossless_with_every_policy() {
    let registry = Registry::builtin();
    let mut forms: Vec<_> = registry.kinds().map(|kind| (kind, registry.example(kind).unwrap())).collect();
    forms.push(("top-k", json!({ "widths": [2, 2] })));
    forms.push(("best-first", json!({ "scope": "batch", "mean": 3 })));
    for (kind, params) in forms {
        for vocab in [2, 3, 4] {
            for conditional in [false, true] {
                for seed in 1..4 {
                    let proof = Proof { conditional, ..Proof::new(vocab, seed, 3, 5) };
                    let bias = bias(kind, &params, &proof, &Rule::Law(Law::SampleMatch { seed: 0 }));
                    assert!(bias < EXACT, "{kind} {params}, vocabulary {vocab}, conditional {conditional}: {bias:e}");
                }
            }
        }
    }
}

fn drawing() -> Vec<(&'static str, serde_json::Value)> {
    vec![
        ("chain", json!({})),
        ("top-k", json!({ "widths": [2, 1] })),
        ("top-k", json!({ "widths": [1, 2] })),
        ("sequoia", json!({ "acceptance": [0.6, 0.3] })),
    ]
}

/// Drawn candidates: the policies that accept them, under the laws that verify them.
#[test]
fn laws_over_draws_are_lossless_with_every_policy_that_accepts_draws() {
    let rules = [
        Rule::Law(Law::Residual { replace: true, seed: 0 }),
        Rule::Law(Law::Residual { replace: false, seed: 0 }),
        Rule::Law(Law::Traversal { seed: 0 }),
    ];
    for (kind, params) in drawing() {
        for (seed, rule) in (1..).zip(&rules) {
            for conditional in [false, true] {
                for (vocab, budget) in [(2, 4), (3, 3)] {
                    let proof = Proof { conditional, ..Proof::new(vocab, seed, 2, budget) };
                    let bias = bias(kind, &params, &proof, rule);
                    assert!(bias < EXACT, "{kind} {params}, vocabulary {vocab}, conditional {conditional}: {bias:e}");
                }
            }
        }
    }
}

/// The control: a rule known to be biased fails with the same policies and models.
#[test]
fn a_biased_rule_is_noticed() {
    let worst = drawing()
        .iter()
        .map(|(kind, params)| bias(kind, params, &Proof::new(3, 1, 2, 3), &Rule::BiasedTraversal))
        .fold(0.0, f64::max);
    assert!(worst > 1e-3, "{worst:e}");
}
