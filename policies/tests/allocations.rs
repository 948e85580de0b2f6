//! In steady state no policy allocates: counted with an allocator of the test's own.

mod counting;

use counting::allocations;
use serde_json::json;
use treeline_core::{
    Ask, Batch, Caps, Conditional, CostCurve, DraftView, Draw, Forest, Grow, Lattice, NodeRef, Round, Sampling, Seq,
};
use treeline_policies::Registry;
use treeline_policies::conformance::scene::{limits, scene};

/// Allocations of the policy's calls in one round.
fn round(policy: &mut dyn treeline_core::TreePolicy, conditional: bool, forest: &mut Forest) -> u64 {
    let scene = scene(5, 3, limits(32, 7, 16), false, 3);
    let seq = |i: usize| Seq {
        slot: i as u32,
        request: i as u64,
        index: i,
        start: 9,
        root: 1,
        left: 100,
        eos: std::sync::Arc::from([]),
        sampling: Sampling::GREEDY,
        round: 0,
    };
    let batch = Batch { seqs: (0..3).map(seq).collect() };
    let caps = [Caps { nodes: 32, depth: 7 }; 3];
    let cost = CostCurve::new(vec![1, 8, 64], vec![10.0, 13.0, 22.0]).unwrap();
    let round =
        Round { index: 0, batch: &batch, caps: &caps, limits: &scene.limits, draw: Draw::Ranked, cost: Some(&cost) };
    let mut lattice = Lattice::new(0);
    let mut tables = Conditional::new(3, 0);
    for (seq, player) in scene.players.iter().enumerate() {
        lattice.begin_seq();
        player.rows.iter().for_each(|row| lattice.push_row(row, true, true));
        tables.set_depth(seq as u32, 7);
    }
    forest.reset(&batch, &caps);
    let mut asks: Vec<Ask> = Vec::with_capacity(8);
    let mut wave: Vec<NodeRef> = Vec::with_capacity(4096);
    let mut spent = 0;
    let mut counted = |work: &mut dyn FnMut() -> Grow| {
        let before = allocations();
        let grow = work();
        spent += allocations() - before;
        grow
    };
    counted(&mut || {
        policy.ask(&round, &mut asks);
        Grow::Done
    });
    loop {
        wave.clear();
        let drafts: &dyn DraftView = if conditional { &tables } else { &lattice };
        if counted(&mut || policy.grow(&round, drafts, forest, &mut wave)) == Grow::Done {
            return spent;
        }
        for &at in &wave {
            tables.expand(at, &scene.players[at.seq as usize].rows[at.depth as usize], None, true, true);
        }
    }
}

#[test]
fn steady_state_allocates_nothing() {
    let registry = Registry::builtin();
    let limits = limits(32, 7, 16);
    let mut forms: Vec<_> = registry.kinds().map(|kind| (kind, registry.example(kind).unwrap())).collect();
    forms.push(("best-first", json!({ "scope": "batch", "mean": 20 })));
    forms.push(("top-k", json!({ "widths": [4, 2, 1] })));
    forms.push(("adaptive", json!({ "objective": "renewal" })));
    forms.push(("cost-aware", json!({ "calibration": "claimed", "objective": "ratio" })));
    forms.push(("batch-wide", json!({ "calibration": "given", "reliability": [[-4.0, 0.01], [0.0, 0.9]] })));
    forms.push(("sequoia", json!({ "acceptance": [0.6, 0.1], "size": "cost" })));
    for (kind, params) in forms {
        for conditional in [false, true] {
            let mut policy = registry.build(kind, &params, &limits).unwrap();
            let mut forest = Forest::default();
            let first = round(policy.as_mut(), conditional, &mut forest);
            assert!(first > 0, "{kind}: the counter does not count");
            for _ in 0..3 {
                round(policy.as_mut(), conditional, &mut forest);
            }
            let spent = round(policy.as_mut(), conditional, &mut forest);
            assert_eq!(spent, 0, "{kind} {params}, conditional {conditional}");
        }
    }
}
