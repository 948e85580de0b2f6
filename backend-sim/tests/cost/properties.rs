//! What holds for every query.

use super::scene::Scene;
use proptest::prelude::*;
use std::sync::OnceLock;
use treeline_core::log::Phase;
use treeline_core::{StepCost, StepShape};
use treeline_sim::cost::{CostModel, OpScales, Origin, StepQuery, Tier};
use treeline_sim::experts::Experts;

/// A bound, a table, a blend and an eager model with scales.
fn models() -> &'static [CostModel] {
    static MODELS: OnceLock<Vec<CostModel>> = OnceLock::new();
    MODELS.get_or_init(|| {
        let scene = Scene::kimi_b300();
        let blend = Scene { overhead_scale: 0.4, ..scene.clone() };
        let mut eager = scene.clone();
        eager.deployment.execution = treeline_sim::profile::Execution::Eager;
        eager.deployment.graphs = None;
        eager.scales = OpScales { moe: 1.2, host: 0.5, draft: 2.0, ..OpScales::default() };
        let mut plain = scene.clone();
        plain.drafter = None;
        let mut module = Scene::new("vllm-0.24-h200-tp8", "kimi-k2.5", Some("kimi-k2.5-eagle3"));
        module.deployment.tables.attention_module = true;
        module.deployment.tables.attention = module.deployment.tables.gemm.clone();
        vec![
            scene.model(Tier::Bound),
            scene.model(Tier::Table),
            blend.model(Tier::Table),
            eager.model(Tier::Table),
            plain.model(Tier::Table),
            module.model(Tier::Table),
        ]
    })
}

/// Any number, the corners often.
fn count() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(1), Just(u32::MAX), 0..300_u32, 0..200_000_u32, any::<u32>()]
}

fn query() -> impl Strategy<Value = StepQuery> {
    let context = prop_oneof![Just(0), Just(u64::MAX), 0..10_000_000_u64, any::<u64>()];
    let effective = prop_oneof![Just(None), Just(Some(f64::NAN)), Just(Some(-1.0)), (0.0..1e6).prop_map(Some)];
    (count(), count(), context, count(), count(), effective, 0..9_u32).prop_map(
        |(requests, rows, context_sum, draft_requests, draft_rows, effective_rows, expand_waves)| StepQuery {
            requests,
            rows,
            context_sum,
            draft_requests,
            draft_rows,
            effective_rows,
            expand_waves,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// No query makes a price that is not a finite number of at least 0, and the breakdown's lines add up to it.
    #[test]
    fn prices_are_finite_and_breakdowns_add_up(q in query()) {
        for model in models() {
            let p = model.price(&q);
            for x in p.phases.ms.iter().chain(&[p.hbm_bytes, p.flops, p.watts, p.joules, p.experts.unwrap_or(0.0)]) {
                prop_assert!(x.is_finite() && *x >= 0.0, "{q:?}: {p:?}");
            }
            let lines = model.breakdown(&q);
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (a.abs() + b.abs()) + 1e-9;
            for phase in Phase::ALL {
                let us = lines.iter().filter(|l| l.phase == phase).fold(0.0, |sum, l| sum + l.us);
                prop_assert!(near(us * 1e-3, p.phases.of(phase)), "{phase:?} {us} {q:?} {p:?}");
            }
            let link = ["all-reduce", "gather"];
            let bytes: f64 = lines.iter().filter(|l| !link.iter().any(|n| l.name.contains(n))).map(|l| l.bytes).sum();
            prop_assert!(near(bytes, p.hbm_bytes), "{bytes} {}", p.hbm_bytes);
            prop_assert!(near(lines.iter().map(|l| l.flops).sum(), p.flops));
            let flagged = lines.iter().any(|l| !l.in_domain);
            prop_assert!(!flagged || !p.in_domain, "a line outside of its domain marks the price: {q:?}");
            prop_assert_eq!(model.in_domain(&q), p.in_domain);
            prop_assert!(model.prefill_ms(q.rows, q.draft_rows).is_finite());
        }
    }

    /// The curve is the price, point by point, and so is the oracle that policies see.
    #[test]
    fn curve_and_oracle_agree_with_the_price(
        requests in 1..600_u32, each in 1..80_u32, context in 0..200_000_u32, drafted: bool
    ) {
        let rows: Vec<u32> = (1..=each).map(|n| n * requests).collect();
        for model in models() {
            let shape = StepShape { requests, rows: requests, context, draft_rows: if drafted { 8 * requests } else { 0 } };
            let mut ms = vec![0.0; rows.len()];
            StepCost::curve(model, &shape, &rows, &mut ms);
            for (&rows, ms) in rows.iter().zip(&ms) {
                let shape = StepShape { rows, ..shape };
                let price = model.price(&StepQuery::from(&shape)).ms();
                prop_assert!((price - ms).abs() <= 1e-9 * price, "{rows}: {price} {ms}");
                prop_assert!((model.step(&shape).total() - ms).abs() <= 1e-9 * price);
            }
        }
    }

    /// Longer contexts and more experts never make a step faster.
    #[test]
    fn more_work_costs_no_less(requests in 1..200_u32, each in 1..30_u32, context in 16..60_000_u32) {
        for model in models() {
            let q = StepQuery::block(requests, each, context, 8);
            let at = |q: &StepQuery| model.price(q).ms();
            prop_assert!(at(&StepQuery { context_sum: 2 * q.context_sum, ..q }) >= at(&q) * 0.97, "tables have noise of a few %");
            let few = StepQuery { effective_rows: Some(1.0), ..q };
            prop_assert!(at(&few) <= at(&q) + 1e-12);
        }
    }

    /// `overhead_scale` interpolates between bound and table.
    #[test]
    fn the_scale_interpolates(requests in 1..200_u32, each in 1..30_u32, context in 16..60_000_u32) {
        let q = StepQuery::block(requests, each, context, 8);
        let [bound, table, blend] = [0, 1, 2].map(|i| models()[i].price(&q).ms());
        prop_assert!((blend - (bound + 0.4 * (table - bound))).abs() < 1e-9 * table);
        prop_assert!(models()[2].breakdown(&q).iter().all(|l| l.tier == Origin::Blend));
    }
}

/// Prices do not depend on how the model is shared, and the digest tells models apart.
#[test]
fn a_digest_names_everything_that_a_price_depends_on() {
    fn shared<T: Send + Sync>(_: &T) {}
    let scene = Scene::kimi_b300();
    let model = scene.model(Tier::Table);
    shared(&model);
    assert_eq!(model.digest(), scene.model(Tier::Table).digest());
    let mut others = vec![scene.model(Tier::Bound)];
    others.push(Scene { overhead_scale: 0.5, ..scene.clone() }.model(Tier::Table));
    others.push(Scene { drafter: None, ..scene.clone() }.model(Tier::Table));
    others.push(Scene { scales: OpScales { gemm: 1.1, ..OpScales::default() }, ..scene.clone() }.model(Tier::Table));
    let skewed = Experts::Skewed { popularity: treeline_sim::experts::Popularity::Zipf { exponent: 0.5 } };
    others.push(Scene { experts: Some(skewed), ..scene }.model(Tier::Table));
    let mut digests: Vec<&str> = others.iter().map(CostModel::digest).chain([model.digest()]).collect();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 6);
}
