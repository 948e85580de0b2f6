//! Look-ups equal the replay of the real policy, budget by budget, round by round.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use treeline_core::stream::{philox4x32, unit};
use treeline_core::trace::{Position, Trace, TraceMeta, TraceRequest};
use treeline_core::{End, Engine, Law, Limits, RunSetup, run};
use treeline_policies::Registry;
use treeline_sim::accept::process;
use treeline_sim::nested::{Nested, NestedError};
use treeline_sim::{ReplayEngine, requests};

const MOST: u32 = 64;

/// Holds all budgets of `policy` together with the tables of `spine` levels.
fn check(trace: &Trace, policy: &str, spine: u32, budgets: impl Iterator<Item = u32>) {
    let nested = Nested::build(trace, MOST, spine).unwrap();
    let trace = Arc::new(trace.clone());
    let place = |id: u64| trace.requests.iter().position(|r| r.id == id).unwrap();
    for budget in budgets {
        let mut engine = ReplayEngine::new(trace.clone(), 3).unwrap();
        let info = engine.info();
        let limits = Limits { budget, depth: info.depth, width: info.width, concurrency: 3 };
        let mut policy = Registry::builtin().build(policy, &serde_json::json!({}), &limits).unwrap();
        let law = Law::Greedy;
        let setup = RunSetup { budget, concurrency: 3, law: &law, cost: None };
        let mut rounds = 0;
        run(&mut engine, policy.as_mut(), &requests(&trace), &setup, &mut |view| {
            for e in &view.log.entries {
                let step = e.result.as_ref().unwrap();
                let r = place(e.request);
                let i = e.start - trace.requests[r].prompt_tokens;
                let case = format!("budget {budget}, request {r}, root {i}");
                assert_eq!(nested.accepted(r, i, budget), step.path.len() as u32, "{case}");
                assert_eq!(nested.committed(r, i, budget), step.emitted.len() as u32, "{case}");
                assert_eq!(nested.nodes(r, i, budget), e.rows - 1, "{case}");
                assert!((nested.phi(r, i, budget) - e.expected).abs() < 1e-5, "{case}");
                rounds += 1;
            }
        })
        .unwrap();
        assert!(rounds > 0);
    }
}

/// A trace of rows from a few log-probabilities, so that ties abound; short rows, ends by length, end token and context.
fn tied(seed: u32) -> Trace {
    let mut n = 0;
    let mut draw = |most: u32| {
        n += 1;
        (unit(philox4x32([n, seed, 0, 0], [7, 9])[0]) * f64::from(most)) as u32
    };
    let (depth, width) = (4, 9);
    let request = |id: u64, draw: &mut dyn FnMut(u32) -> u32| {
        let (emitted, end) = [(24, End::Length), (20, End::Eos), (31, End::Context)][id as usize % 3];
        let prompt_tokens = if end == End::Context { 40 } else { 3 };
        let positions = (0..emitted - 1)
            .map(|i| {
                let mut p = Position::default();
                for d in 0..depth {
                    let mut row: Vec<f32> = (0..2 + draw(width - 1)).map(|_| -0.25 * draw(14) as f32).collect();
                    row.sort_by(|a, b| b.total_cmp(a));
                    if (d as usize) < (emitted - 1 - i) as usize {
                        let rank = draw(row.len() as u32 + 1);
                        p.truth.push((rank < row.len() as u32).then_some(if draw(2) == 0 { 0 } else { rank }));
                    }
                    p.logp.extend(&row);
                    p.ends.push(p.logp.len() as u32);
                }
                p
            })
            .collect();
        let max_new = if end == End::Length { emitted } else { 60 };
        TraceRequest { id, domain: "d".into(), prompt_tokens, max_new, tokens: vec![], emitted, positions, end }
    };
    let meta = TraceMeta {
        depth,
        width: width + 1,
        conditional: false,
        ids: false,
        vocab: 100,
        context: 70,
        temperature: 0.0,
        seed: 0,
        source: "ties".into(),
    };
    Trace { meta, requests: (0..6).map(|id| request(id, &mut draw)).collect() }
}

#[test]
fn every_budget_equals_the_replay() {
    let trace = process("kimi-k2.6-dspark", Path::new(".")).unwrap().generate(3, 40, 5).unwrap();
    check(&trace, "best-first", 0, 1..=MOST);
    check(&trace, "spine-first", 7, (1..=MOST).step_by(3));
}

#[test]
fn chains_are_look_ups_too() {
    let trace = process("kimi-k2.6-dspark", Path::new(".")).unwrap().generate(2, 40, 5).unwrap();
    let nested = Nested::build(&trace, 7, 7).unwrap();
    for r in 0..2 {
        for i in 0..nested.positions(r) {
            // Near the end of a response the spine is shorter, and nodes beyond it are siblings.
            let spine = 7.min(nested.behind(r, i) - 1);
            assert_eq!(nested.chain(r, i), nested.accepted(r, i, spine), "the spine alone is the chain");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn ties_short_rows_and_ends_change_nothing(seed in any::<u32>(), budget in 1u32..=MOST) {
        check(&tied(seed), "best-first", 0, [budget, MOST].into_iter());
        check(&tied(seed), "spine-first", 4, [budget].into_iter());
    }
}

/// Rows cut at few ranks are certain for exactly as many nodes as the uncut rows confirm, or fewer, and never beyond.
#[test]
fn a_cut_trace_says_where_it_stops_being_certain() {
    let mut wide = process("kimi-k2.6-dspark", Path::new(".")).unwrap();
    wide.width = 64;
    let whole = wide.generate(2, 60, 9).unwrap();
    let full = Nested::build(&whole, MOST, 0).unwrap();
    assert_eq!(full.cut_share(MOST), 0.0, "at depth d a tree of 64 nodes reads 65 - d ranks");
    for width in [1u32, 2, 4, 16] {
        let mut cut = whole.clone();
        cut.meta.width = width;
        for p in cut.requests.iter_mut().flat_map(|r| &mut r.positions) {
            let rows: Vec<Vec<f32>> = (1..=p.ends.len() as u32).map(|d| p.row(d)[..width as usize].to_vec()).collect();
            p.ends = (1..=rows.len() as u32).map(|i| i * width).collect();
            p.logp = rows.concat();
            p.truth.iter_mut().for_each(|t| *t = t.filter(|&r| r < width));
        }
        let nested = Nested::build(&cut, MOST, 0).unwrap();
        let (mut flagged, mut wrong) = (0, 0);
        for r in 0..2 {
            for i in 0..nested.positions(r) {
                for n in 1..=MOST {
                    let same = nested.tree(r, i).take(n as usize).eq(full.tree(r, i).take(n as usize));
                    assert!(same || nested.cut(r, i, n), "width {width}, root {i}, {n} nodes differ without a flag");
                    flagged += u32::from(nested.cut(r, i, n));
                    wrong += u32::from(!same);
                    assert!(nested.accepted(r, i, n) <= full.accepted(r, i, n) || nested.cut(r, i, n));
                }
            }
        }
        assert!(wrong > 0 || width == 16, "width {width}: nothing was cut, the test shows nothing");
        assert!(f64::from(flagged) < 1.6 * f64::from(wrong) + 60.0, "width {width}: {flagged} flags for {wrong}");
    }
}

#[test]
fn what_has_no_tables_is_refused() {
    let mut trace = tied(1);
    trace.meta.conditional = true;
    assert_eq!(Nested::build(&trace, 8, 0), Err(NestedError::Conditional));
    let says = Nested::build(&tied(1), 4000, 0).unwrap_err().to_string();
    assert!(says.contains("2047"), "{says}");
    let mut broken = tied(1);
    broken.requests[0].positions.pop();
    assert!(matches!(Nested::build(&broken, 8, 0), Err(NestedError::Trace(_))));
}

/// A process had in parts: the same requests, and the same tables once they are put together.
#[test]
fn parts_are_the_whole() {
    let process = process("kimi-k2.6-dspark", Path::new(".")).unwrap();
    let whole = process.generate(7, 40, 5).unwrap();
    let part = |ids| process.generate_part(ids, 40, 5).unwrap();
    let [first, second, none] = [part(0..3), part(3..7), part(7..7)];
    assert_eq!([&first.requests[..], &second.requests[..]].concat(), whole.requests);
    for spine in [0, 2] {
        let tables = |trace: &Trace| Nested::build(trace, 24, spine).unwrap();
        let mut together = tables(&first);
        for part in [&none, &second, &none] {
            together.append(&tables(part)).unwrap();
        }
        assert_eq!(together, tables(&whole));
        let before = together.clone();
        let twice = together.append(&tables(&second)).unwrap_err();
        assert!(twice.to_string().contains("request 3: its id occurs twice"), "{twice}");
        let other = together.append(&Nested::build(&none, 23, spine).unwrap()).unwrap_err();
        assert!(matches!(other, NestedError::Parts { .. }), "{other}");
        assert_eq!(together, before);
    }
}
