//! Tallies from hand-made rounds, and the public faults of metrics.
#![allow(clippy::unwrap_used)]

use treeline_core::metrics::{Tally, Warning, warnings};
use treeline_core::{End, Entry, Fault, PhaseTimes, Priced, RoundLog, Step};

/// One request's step: `rows` verified, `accepted` drafts (all of rank 0) and a bonus.
fn entry(index: usize, rows: u32, accepted: u32) -> Entry {
    Entry {
        request: index as u64,
        index,
        slot: 0,
        start: 10,
        step: 0,
        asked: rows.saturating_sub(1),
        rows,
        depth: rows - 1,
        expected: 1.5,
        result: Ok(Step {
            emitted: (0..=accepted).collect(),
            path: (1..=accepted).collect(),
            end: None,
            truth_ranks: vec![Some(0); accepted as usize],
        }),
    }
}

fn round(entries: Vec<Entry>) -> RoundLog {
    RoundLog { entries, ..RoundLog::default() }
}

#[test]
fn both_means_of_tau() {
    let mut tally = Tally::new();
    // Request 0: 3 steps of 4 tokens; request 2: 1 step of 1 token; request 1 never steps.
    for _ in 0..3 {
        tally.add(&round(vec![entry(0, 8, 3)]));
    }
    tally.add(&round(vec![entry(2, 8, 0)]));
    assert_eq!(tally.tau(), Some(13.0 / 4.0));
    assert_eq!(tally.tau_unweighted(), Some((4.0 + 1.0) / 2.0));
    assert_eq!(tally.tau_parts(), [(12.0, 3.0), (0.0, 0.0), (1.0, 1.0)]);
    assert_eq!(tally.emitted(), [0, 1, 0, 0, 3]);
    assert_eq!(tally.rows_mean(), Some(8.0));
    assert_eq!(Tally::new().tau(), None);
}

#[test]
fn depth_rates_are_conditional_and_stop_where_the_response_ends() {
    let mut tally = Tally::new();
    tally.add(&round(vec![entry(0, 4, 3), entry(1, 4, 1), entry(2, 4, 0)]));
    // Ended by an accepted end-of-sequence token: depth 2 was never judged.
    let mut ended = entry(3, 4, 1);
    let Ok(step) = &mut ended.result else { unreachable!() };
    step.emitted.truncate(1);
    step.end = Some(End::Eos);
    tally.add(&round(vec![ended]));
    let depths: Vec<(u64, u64)> = tally.depths().iter().map(|d| (d.reached, d.accepted)).collect();
    assert_eq!(depths, [(4, 3), (2, 1), (1, 1)]);
    assert_eq!(tally.depths()[1].rate(), Some(0.5));
    assert_eq!(tally.hits(), [vec![3], vec![1], vec![1]]);
}

#[test]
fn experts_and_times_are_grouped_by_the_rounds_rows() {
    let mut tally = Tally::new();
    let timed = |experts: &[u32], ms| RoundLog {
        entries: vec![entry(0, 4, 1), entry(1, 2, 1)],
        experts: experts.to_vec(),
        times: Some(PhaseTimes { ms: [100.0, ms, 0.0, ms, 0.0, 0.0, 0.0] }),
        ..RoundLog::default()
    };
    tally.add(&timed(&[4, 6], 1.0));
    tally.add(&timed(&[7, 7], 2.0));
    let points: Vec<_> = tally.experts().iter().map(|(rows, p)| (*rows, p.count, p.mean())).collect();
    assert_eq!(points, [(6, 2, Some(6.0))]);
    // Prefill stays out; both requests waited for each round.
    assert_eq!(tally.ms_mean(), Some(3.0));
    assert_eq!(tally.tpot(2).ms(), Some(12.0 / 8.0));
}

/// What a cost model says of a round stands in where nothing was counted, and can be told apart.
#[test]
fn modelled_experts_stand_in_for_counted_ones_and_say_so() {
    let priced = |experts, in_domain, charged_ms| Priced {
        experts,
        padded_rows: 8,
        watts: 300.0,
        joules: 2.5,
        in_domain,
        charged_ms,
    };
    let timed = |experts: &[u32], priced| RoundLog {
        entries: vec![entry(0, 4, 1), entry(1, 2, 1)],
        experts: experts.to_vec(),
        times: Some(PhaseTimes { ms: [7.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0] }),
        priced,
        ..RoundLog::default()
    };
    let mut tally = Tally::new();
    tally.add(&timed(&[10], Some(priced(Some(50.0), true, 0.0))));
    tally.add(&timed(&[], Some(priced(Some(20.0), false, 7.0))));
    tally.add(&timed(&[], Some(priced(None, true, 0.0))));
    tally.add(&timed(&[30], None));
    assert_eq!(tally.experts_mean(), Some(20.0), "10 and 30 counted, 20 modelled; one round knows nothing");
    let sum = tally.priced();
    assert_eq!((sum.rounds, sum.outside, sum.experts_modelled, sum.padded_rows), (3, 1, 1, 24));
    assert_eq!((sum.joules, sum.charged_ms), (7.5, 7.0));
    // Prefill counts where it was charged, once per request that waited for it.
    assert_eq!(tally.ms_mean(), Some((4.0 * 2.0 + 7.0) / 4.0));
    assert_eq!(tally.requests()[1].ms, 15.0);
}

/// Public fault 11: the acceptance rate falls with the budget by arithmetic alone, τ does not.
#[test]
fn fault_11_rate_falls_with_the_budget_tau_does_not() {
    let cell = |rows| {
        let mut tally = Tally::new();
        for accepted in [2, 3, 4] {
            tally.add(&round(vec![entry(0, rows, accepted)]));
        }
        tally
    };
    let (small, large) = (cell(8), cell(64));
    assert_eq!(small.tau(), large.tau());
    // Negative control: ranked by the rate, the small tree would win by a factor of nine.
    assert_eq!(small.acceptance_rate().unwrap() / large.acceptance_rate().unwrap(), 9.0);
}

/// Public fault 51: skipped drafting is not a draft of 0 %, rows are those really verified, and the bonus is in τ.
#[test]
fn fault_51_skipped_drafting_is_not_a_draft_of_nothing() {
    let mut tally = Tally::new();
    tally.add(&round(vec![entry(0, 5, 4)]));
    for _ in 0..9 {
        // Asked for four nodes, drafted none.
        tally.add(&round(vec![Entry { asked: 4, ..entry(0, 1, 0) }]));
    }
    assert_eq!(tally.acceptance_rate(), Some(1.0));
    assert_eq!(tally.depths()[0].rate(), Some(1.0));
    assert_eq!((tally.skipped(), tally.phi().steps), (9, 1));
    assert_eq!(tally.tau(), Some(14.0 / 10.0));
    // Negative control: placeholders counted as drafts give 10 %.
    let placeholders = 4.0 / (10.0 * 4.0);
    assert_ne!(tally.acceptance_rate(), Some(placeholders));
}

/// Public fault 52: τ collapsed to 1.0 unseen.
#[test]
fn fault_52_a_hundred_barren_steps_are_a_warning() {
    let barren = |steps, rows| {
        let mut tally = Tally::new();
        for index in 0..8 {
            tally.add(&round(vec![entry(index, rows, 0)]));
        }
        (8..steps).for_each(|_| tally.add(&round(vec![entry(0, rows, 0)])));
        warnings(&tally, None, true)
    };
    assert_eq!(barren(100, 8), [Warning::NothingAccepted { steps: 100 }]);
    assert_eq!(barren(99, 8), []);
    // Plain decoding has τ = 1 by design.
    assert_eq!(barren(200, 1), []);
    // Negative control: one accepted draft among them ends the run of barren steps.
    let mut tally = Tally::new();
    (0..8).for_each(|i| tally.add(&round(vec![entry(i, 8, 0)])));
    (0..80).for_each(|_| tally.add(&round(vec![entry(0, 8, 0)])));
    tally.add(&round(vec![entry(0, 8, 1)]));
    (0..80).for_each(|_| tally.add(&round(vec![entry(0, 8, 0)])));
    assert_eq!(warnings(&tally, None, true), []);
}

/// Public fault 53: cold rounds that are measured are named; loops, few requests and faults too.
#[test]
fn fault_53_cold_start_is_named() {
    let mut tally = Tally::new();
    let times = Some(PhaseTimes::default());
    let failed = Entry { result: Err(Fault::TargetLogits { row: 0 }), ..entry(1, 4, 0) };
    tally.add(&RoundLog { entries: vec![entry(0, 4, 1), failed], times, ..RoundLog::default() });
    let cold = warnings(&tally, Some(0.5), false);
    let expected = [
        Warning::Loops { share: 0.5 },
        Warning::FewRequests { requests: 1 },
        Warning::ColdStart,
        Warning::Faults { requests: 1 },
    ];
    assert_eq!(cold, expected);
    assert!(!warnings(&tally, Some(0.0), true).contains(&Warning::ColdStart));
    assert!(cold.iter().all(|w| w.to_string().ends_with(w.advice())));
}
