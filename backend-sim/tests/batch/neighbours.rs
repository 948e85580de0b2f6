//! Neighbouring budgets: what differs between them is what their trees accept, not where the steps happened to stand.

use crate::common::{BLOCK, closed, moe, play, trace};
use treeline_sim::accept::process;
use treeline_sim::batch::fast::{FastPolicy, FastResult, Load, Tables, simulate};
use treeline_sim::nested::Nested;

fn load(concurrency: u32, request_rounds: u32) -> Load<'static> {
    Load { concurrency, context: None, response: None, draft_rows: BLOCK, request_rounds, requests: None }
}

fn best(tables: &Tables<'_>, budget: u32, load: &Load<'_>, seed: u64) -> FastResult {
    simulate(tables, &*moe(), &FastPolicy::BestFirst { budget, spine: 0 }, load, seed).unwrap()
}

/// τ of a fixed policy is that of the general way over all responses, whatever is sampled.
#[test]
fn tau_is_that_of_the_whole_trace() {
    let (trace, cost) = (trace(40, 60), moe());
    let nested = Nested::build(&trace, 24, 0).unwrap();
    let tables = Tables::new(&nested);
    for budget in [1, 8, 9, 24] {
        let ran = play(&trace, &cost, &closed(1, budget), "best-first", "{}").unwrap();
        let tokens: u32 = trace.requests.iter().map(|r| r.emitted - 1).sum();
        let tau = f64::from(tokens) / ran.rounds.len() as f64;
        for (concurrency, rounds, seed) in [(1, 100, 1), (1, 5000, 2), (8, 160, 3), (32, 3000, 4)] {
            let r = best(&tables, budget, &load(concurrency, rounds), seed);
            assert!((r.tau / tau - 1.0).abs() < 1e-12, "budget {budget}: {} and {tau}", r.tau);
            for (sums, request) in r.per_request.iter().zip(&trace.requests) {
                let went = ran.rounds.iter().filter(|w| w.entries[0].request == request.id).count() as f64;
                let own = sums.tokens / sums.rounds;
                assert!((own * went / f64::from(request.emitted - 1) - 1.0).abs() < 1e-12, "request {}", request.id);
            }
        }
    }
}

/// A larger tree accepts more at every root, so more on average, but for the roots that its walk comes to: that part is of
/// the responses at hand, and within their error.
#[test]
fn more_nodes_accept_more() {
    let process = process("kimi-k2.6-dspark", std::path::Path::new(".")).unwrap();
    let trace = process.generate(120, 300, 3).unwrap();
    let nested = Nested::build(&trace, 64, 0).unwrap();
    let tables = Tables::new(&nested);
    // Rounds that each response takes per token of all, which is what τ is made of: 1/τ is their sum.
    let rounds = |n: u32| -> Vec<f64> {
        let r = best(&tables, n, &load(8, 800), 1);
        r.per_request.iter().map(|s| s.rounds / r.tokens).collect()
    };
    let (mut before, mut rising) = (rounds(1), 0);
    for n in 2..=64 {
        let after = rounds(n);
        let saved: Vec<f64> = before.iter().zip(&after).map(|(b, a)| b - a).collect();
        let (count, gain) = (saved.len() as f64, saved.iter().sum::<f64>());
        let square = saved.iter().map(|s| (s - gain / count).powi(2)).sum::<f64>();
        let (all, error) = (after.iter().sum::<f64>(), (square * count / (count - 1.0)).sqrt());
        assert!(gain > -3.0 * error, "τ falls by {} % from {} to {n} nodes, error {error}", 100.0 * gain / all, n - 1);
        assert!(gain > -0.003 * all && error < 0.004 * all, "{n} nodes: {gain}, error {error}, of {all}");
        rising += u32::from(gain > 0.0);
        before = after;
    }
    assert!(rising >= 58, "τ rises at {rising} of 63 nodes");
}
