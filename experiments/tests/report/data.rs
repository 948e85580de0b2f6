//! Synthetic results with the shape and size of a quickstart run. The figures are invented by a small formula: they test
//! the report and say nothing about any model.

use serde_json::json;
use treeline::report::{Context, RoutedExperts};
use treeline::results::{
    Cell, CellDetail, Comparison, DepthRow, RequestRow, RowsPoint, SCHEMA_VERSION, Source, Summary, WaterfallRow,
};

/// A number in 0..1 that depends on its arguments only.
fn noise(a: u64, b: u64) -> f64 {
    let mut x = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.wrapping_mul(0xd1b5_4a32_d192_ed03) ^ 0x1234_5678;
    x ^= x >> 31;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 29;
    (x >> 11) as f64 / (1u64 << 53) as f64
}

/// Domains of the prompts, four prompts each.
pub const DOMAINS: [&str; 5] = ["humaneval", "gsm8k", "mt-bench", "code", "prose"];

/// One cell with its detail: policy, its parameters, budget, temperature, mean rows, and the τ it should come to.
pub fn cell(policy: &str, params: serde_json::Value, budget: u32, temperature: f64, rows: f64, tau: f64) -> CellDetail {
    let mut per_request = Vec::new();
    for id in 0..20u64 {
        let easy = 1.0 + 0.5 * (noise(id, 3) - 0.5) + 0.12 * (noise(id, u64::from(budget) + 7) - 0.5);
        let own = 1.0 + (tau - 1.0) * easy;
        let steps = (96.0 / own).round() as u64;
        per_request.push(RequestRow {
            id,
            domain: DOMAINS[id as usize / 4].to_owned(),
            steps,
            tokens: 96,
            ms: Some(steps as f64 * (6.0 + 0.55 * rows)),
            looped: Some(temperature == 0.0 && id % 3 == 0),
        });
    }
    let steps: u64 = per_request.iter().map(|r| r.steps).sum();
    let tokens: u64 = per_request.iter().map(|r| r.tokens).sum();
    let measured = tokens as f64 / steps as f64;
    let depth_share = |d: u32| ((tau - 1.0) / tau).powf(0.75) * (1.0 - 0.035 * f64::from(d));
    let mut reached = steps;
    let mut by_depth = Vec::new();
    for depth in 1..=if budget == 0 { 0 } else { 7 } {
        let accepted = (reached as f64 * depth_share(depth)).round() as u64;
        let siblings = if policy == "chain" { 0 } else { accepted / 5 };
        by_depth.push(DepthRow {
            depth,
            reached,
            accepted,
            by_rank: [accepted - siblings, siblings - siblings / 3, siblings / 3],
        });
        reached = accepted;
    }
    let own_rows = |i: u32| (rows * (0.55 + 0.15 * f64::from(i))).round().max(2.0) as u32;
    let spread: Vec<u32> =
        if policy == "adaptive" { (0..7).map(own_rows).collect() } else { vec![rows.round() as u32] };
    let experts = |r: u32| 4.0 * f64::from(r).powf(0.47);
    let ms = |r: u32| 6.0 + 0.55 * f64::from(r) + 2.0 * noise(u64::from(r), 5);
    let point = |r: u32, mean: f64| RowsPoint { rows: r, steps: steps / spread.len() as u64, mean };
    let reach = 6.6;
    let accepted = measured - 1.0;
    let absent = 0.2 * reach;
    let missing = 0.6 * (reach - absent - accepted) * (8.0 / f64::from(budget.max(8))).powf(0.3);
    let step = ms(rows.round() as u32);
    let plain = 7.1;
    CellDetail {
        key: format!("{policy}-{budget}-{temperature}"),
        cell: Cell {
            backend: "cpu".to_owned(),
            policy: policy.to_owned(),
            policy_params: params,
            budget,
            hardware: Some("2 cores of an x86-64 server, AVX2".to_owned()),
            deployment: Some("mini-target (MLA, 128 routed experts top-4, INT4) with mini-dflash (block 8)".to_owned()),
            acceptance: Some("measured".to_owned()),
            concurrency: 1,
            context: 512,
            temperature,
            workload: "humaneval, gsm8k, mt-bench, code, prose".to_owned(),
            ranks: 1,
            graphs: None,
            requests: 20,
            rounds: steps,
            tau: Some(measured),
            tau_lo: Some(1.0 + (measured - 1.0) * 0.86),
            tau_hi: Some(1.0 + (measured - 1.0) * 1.14),
            tau_unweighted: Some(1.0 + (measured - 1.0) * 1.03),
            rows_mean: Some(rows),
            experts_mean: Some(experts(rows.round() as u32)),
            step_ms: Some(step),
            step_ms_lo: Some(step * 0.97),
            step_ms_hi: Some(step * 1.04),
            tok_s: Some(1000.0 * measured / step),
            tok_s_lo: Some(920.0 * measured / step),
            tok_s_hi: Some(1080.0 * measured / step),
            tok_s_user: Some(1000.0 * measured / step),
            tok_s_gpu: None,
            busy: None,
            joules_per_token: None,
            power_w: None,
            speedup: Some(measured * plain / step),
            speedup_lo: None,
            speedup_hi: None,
            mc_error: None,
            loop_share: Some(if temperature == 0.0 { 7.0 / 20.0 } else { 0.0 }),
            tier: "measured".to_owned(),
            source: Source {
                tau: "measured".to_owned(),
                step_ms: Some("measured".to_owned()),
                experts: Some("measured".to_owned()),
            },
            in_domain: None,
            notes: if policy == "adaptive" { vec!["warm-up rounds are part of the cell".to_owned()] } else { vec![] },
        },
        per_request,
        by_depth,
        emitted_histogram: vec![steps / 3, steps / 3, steps / 6],
        experts_by_rows: spread.iter().map(|&r| point(r, experts(r))).collect(),
        ms_by_rows: spread.iter().map(|&r| point(r, ms(r))).collect(),
        waterfall: (budget > 0).then_some(WaterfallRow {
            reach,
            not_in_top_w: absent,
            unreachable: missing,
            surrogate: reach - accepted - absent - missing,
            accepted,
            oracle_tau: 1.0 + reach - absent,
        }),
        phases: vec![
            ("draft".to_owned(), if budget == 0 { 0.0 } else { 2.4 }),
            ("tree".to_owned(), 0.004 * f64::from(budget)),
            ("verify".to_owned(), step - 2.9),
            ("walk".to_owned(), 0.02),
            ("commit".to_owned(), 0.2),
            ("host".to_owned(), 0.1),
        ],
        phi: (budget > 0).then_some((accepted * if temperature == 0.0 { 0.86 } else { 1.12 } + 0.02, accepted)),
        prefill_ms: Some(420.0),
        faults: Vec::new(),
        warnings: Vec::new(),
    }
}

/// A quickstart: ten cells at two temperatures.
pub fn quickstart() -> Vec<CellDetail> {
    let mut cells = Vec::new();
    for (temperature, gain) in [(0.7, 1.0), (0.0, 1.6)] {
        let tau = |t: f64| 1.0 + (t - 1.0) * gain;
        let mut add = |policy: &str, params: serde_json::Value, budget: u32, rows: f64, t: f64| {
            cells.push(cell(policy, params, budget, temperature, rows, if budget == 0 { 1.0 } else { tau(t) }));
        };
        add("plain", json!({}), 0, 1.0, 1.0);
        add("chain", json!({ "budget": 7 }), 7, 8.0, 2.22);
        for (budget, t) in [(8, 2.62), (16, 2.86), (32, 3.07), (64, 3.28)] {
            add("best-first", json!({ "budget": budget }), budget, f64::from(budget) + 1.0, t);
        }
        add("spine-first", json!({ "budget": 16 }), 16, 17.0, 2.80);
        add("top-k", json!({ "budget": 16, "width": 4 }), 16, 17.0, 2.75);
        add("adaptive", json!({ "budget": 64, "decay": 0.98 }), 64, 23.4, 2.93);
    }
    cells
}

/// The summary that belongs to details.
pub fn summary(details: &[CellDetail]) -> Summary {
    Summary {
        schema_version: SCHEMA_VERSION,
        experiment: "quickstart".to_owned(),
        cells: details.iter().map(|d| d.cell.clone()).collect(),
        comparison: Comparison::default(),
        warnings: vec!["35 % of the greedy responses end in a loop: τ at T = 0 flatters every policy".to_owned()],
    }
}

/// A context with everything set.
pub fn context() -> Context {
    Context {
        resolved_toml: "name = \"quickstart\"\nseed = 20261130\n\n[target]\ncheckpoint = \"models/mini-target\"\n"
            .to_owned(),
        manifest: json!({
            "git": { "commit": "0123456789abcdef0123456789abcdef01234567", "dirty": false },
            "machine": { "cores": 2, "cpu": "x86-64 server" },
            "checkpoints": [
                { "name": "mini-target", "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" },
                { "name": "mini-dflash", "sha256": "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752" },
            ],
            "threads": 2,
        }),
        command: "treeline run experiments/quickstart.toml".to_owned(),
        seed: Some(20_261_130),
        experts: Some(RoutedExperts { total: 128, per_token: 4 }),
        failed: Vec::new(),
        priced: None,
    }
}
