//! A priced run with the shape and size of a budget-ceiling grid. The figures come from a small formula of the tests: they
//! have the shapes of real ones and say nothing about any machine.

use serde_json::json;
use treeline::results::{
    Answer, CandidateGain, Cell, Choice, Comparison, ErrorParts, ExpertPoint, Flip, Priced, PricedAcceptance,
    PricedBreakdown, PricedCurve, PricedExperts, PricedOp, PricedPoint, PricedSetup, RefusedCell, SCHEMA_VERSION,
    Scenario, Source, Summary,
};

/// What a grid spans.
#[derive(Clone)]
pub struct Plan {
    /// Acceptance sources: name and τ of a chain of seven.
    pub anchors: Vec<(&'static str, f64)>,
    /// Positions per request.
    pub contexts: Vec<u32>,
    /// Requests at once.
    pub users: Vec<u32>,
    /// Budgets of the trees.
    pub budgets: Vec<u32>,
    /// Tokens of KV that fit.
    pub room: u64,
}

/// The whole grid: 7 sources × 4 contexts × 9 concurrencies × 27 candidates.
pub fn ceiling() -> Plan {
    Plan {
        anchors: vec![
            ("GSM8K τ 5.3", 5.3),
            ("MATH-500", 5.5),
            ("HumanEval", 5.3),
            ("MBPP", 4.5),
            ("MT-Bench", 3.7),
            ("service, τ 3.5 at 8", 3.5),
            ("service, τ 6.4 at 16", 6.4),
        ],
        contexts: vec![1024, 8192, 32_768, 65_536],
        users: vec![1, 2, 4, 8, 16, 32, 64, 128, 256],
        budgets: vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 24, 28, 32, 40, 48, 64],
        room: 2_600_000,
    }
}

/// One source, one context, one concurrency, one budget.
pub fn single() -> Plan {
    Plan { anchors: vec![("GSM8K", 5.3)], contexts: vec![8192], users: vec![32], budgets: vec![16], room: 2_600_000 }
}

/// Operations of a step in ms.
fn ops(users: u32, rows: f64, context: u32, draft: bool) -> Vec<PricedOp> {
    let total = f64::from(users) * rows;
    let effective = f64::from(users) * rows.powf(0.79);
    let experts = 384.0 * (1.0 - (1.0 - 8.0 / 384.0f64).powf(effective));
    let kv = f64::from(users) * f64::from(context);
    let reduce = if total < 19.0 { 11.0 } else { 26.0 + total / 90.0 };
    let op = |name: &str, phase: &str, calls: u32, us: f64, limit: &str| PricedOp {
        name: name.to_owned(),
        phase: phase.to_owned(),
        calls,
        ms: f64::from(calls) * us / 1000.0,
        bound_ms: f64::from(calls) * us / 2600.0,
        bytes: f64::from(calls) * us * 3e6,
        flops: total * 1e9,
        limit: limit.to_owned(),
        tier: if name == "attention" { "table+flops".to_owned() } else { "table".to_owned() },
        in_domain: total <= 4096.0,
    };
    let mut out = vec![
        op("projections", "verify", 61, 12.0 + total / 60.0, "memory"),
        op(
            "attention",
            "verify",
            61,
            11.0 + kv * 1152.0 / 6.5e6 + kv * rows / 2.5e6,
            if rows > 19.0 { "compute" } else { "memory" },
        ),
        op("all-reduce", "verify", 122, reduce, "link"),
        op("router and norms", "verify", 61, 9.0, "latency"),
        op("routed experts", "verify", 60, 30.0 + 0.85 * experts + (total - 48.0).max(0.0) * 0.35, "memory"),
        op("shared expert", "verify", 60, 5.0 + total / 200.0, "memory"),
        op("head", "verify", 1, 60.0 + total / 2.0, "memory"),
        op("sampling", "verify", 1, 40.0 + total / 8.0, "latency"),
        op("host", "host", 1, 350.0, "latency"),
    ];
    if draft {
        out.insert(0, op("draft layers", "draft", 6, 70.0 + f64::from(users) * 1.1, "memory"));
        out.insert(1, op("draft head", "draft", 1, 40.0 + f64::from(users), "compute"));
        out.push(op("tree", "tree", 1, 25.0 + total / 50.0, "latency"));
        out.push(op("walk", "walk", 1, 20.0 + total / 200.0, "latency"));
        out.push(op("commit", "commit", 1, 15.0 + total / 100.0, "memory"));
    }
    out
}

fn step_ms(users: u32, rows: f64, context: u32, draft: bool) -> f64 {
    ops(users, rows, context, draft).iter().map(|o| o.ms).sum()
}

/// τ of a tree; a chain of seven has that of its source.
fn tau(anchor: f64, budget: u32) -> f64 {
    if budget == 0 { 1.0 } else { 1.0 + (anchor - 1.0) * (1.6 - 1.0 * (-f64::from(budget) / 14.0).exp()) }
}

fn cell(name: &str, policy: &str, budget: u32, rows: f64, tau: f64, at: (u32, u32)) -> Cell {
    let (context, users) = at;
    let ms = step_ms(users, rows, context, budget > 0);
    let plain = step_ms(users, 1.0, context, false);
    let rate = 1000.0 * tau / ms;
    let speedup = tau * plain / ms;
    Cell {
        backend: "sim".to_owned(),
        policy: policy.to_owned(),
        policy_params: json!({ "kind": policy, "budget": budget }),
        budget,
        hardware: Some("b300-sxm6".to_owned()),
        deployment: Some("sglang-0.5.14-b300-tp8".to_owned()),
        acceptance: Some(name.to_owned()),
        concurrency: users,
        context,
        temperature: 0.0,
        workload: "synthetic process".to_owned(),
        ranks: 8,
        graphs: Some(true),
        requests: 200,
        rounds: 40_000,
        tau: Some(tau),
        tau_lo: Some(tau * 0.98),
        tau_hi: Some(tau * 1.02),
        tau_unweighted: Some(tau),
        rows_mean: Some(rows),
        experts_mean: Some(384.0 * (1.0 - (1.0 - 8.0 / 384.0f64).powf(f64::from(users) * rows.powf(0.79)))),
        step_ms: Some(ms),
        step_ms_lo: Some(ms * 0.95),
        step_ms_hi: Some(ms * 1.05),
        tok_s: Some(rate * f64::from(users)),
        tok_s_lo: None,
        tok_s_hi: None,
        tok_s_user: Some(rate),
        tok_s_gpu: Some(rate * f64::from(users) / 8.0),
        joules_per_token: Some(8.0 * 600.0 / (rate * f64::from(users))),
        power_w: Some(600.0),
        speedup: Some(speedup),
        speedup_lo: Some(speedup * 0.96),
        speedup_hi: Some(speedup * 1.04),
        mc_error: Some(0.004),
        loop_share: None,
        tier: "table".to_owned(),
        source: Source {
            tau: "fitted process".to_owned(),
            step_ms: Some("table+flops".to_owned()),
            experts: Some("correlated".to_owned()),
        },
        in_domain: Some(f64::from(users) * rows <= 4096.0),
        notes: if f64::from(users) * rows > 4096.0 {
            vec![format!("{users} users: beyond the MoE table")]
        } else {
            vec![]
        },
    }
}

/// Cells of one column: plain, chain, trees, and a policy that chooses.
fn column(plan: &Plan, (name, anchor): (&str, f64), at: (u32, u32)) -> Vec<Cell> {
    let mut out = vec![cell(name, "plain", 0, 1.0, 1.0, at), cell(name, "chain", 7, 8.0, anchor, at)];
    for &b in &plan.budgets {
        out.push(cell(name, "best-first", b, f64::from(b) + 1.0, tau(anchor, b), at));
    }
    let best = out.iter().max_by(|a, b| a.speedup.unwrap().total_cmp(&b.speedup.unwrap())).unwrap().clone();
    let rows = 1.0 + 0.8 * (best.rows_mean.unwrap() - 1.0);
    out.push(cell(name, "batch-wide", *plan.budgets.last().unwrap(), rows, best.tau.unwrap() * 0.985, at));
    out
}

fn choice(c: &Cell) -> Choice {
    Choice { policy: c.policy.clone(), budget: c.budget }
}

fn answer(column: &[Cell]) -> Answer {
    let mut order: Vec<&Cell> = column.iter().collect();
    order.sort_by(|a, b| b.speedup.unwrap().total_cmp(&a.speedup.unwrap()));
    let (best, next) = (order[0], order.get(1));
    let speedup = best.speedup.unwrap();
    let parts = ErrorParts { sampling: 0.01, model: 0.03, transfer: 0.02 };
    let half = speedup * (parts.sampling.powi(2) + parts.model.powi(2) + parts.transfer.powi(2)).sqrt();
    let ahead = next.map(|n| speedup / n.speedup.unwrap());
    Answer {
        acceptance: best.acceptance.clone().unwrap(),
        context: best.context,
        concurrency: best.concurrency,
        best: choice(best),
        tau: best.tau.unwrap(),
        rows: best.rows_mean.unwrap(),
        speedup,
        lo: speedup - half,
        hi: speedup + half,
        parts,
        over_reference: column.iter().find(|c| c.budget == 8).map(|c| speedup / c.speedup.unwrap()),
        reference: Some(Choice { policy: "best-first".to_owned(), budget: 8 }),
        best_fixed: order
            .iter()
            .find(|c| c.policy != "batch-wide")
            .map(|c| CandidateGain { choice: choice(c), speedup: c.speedup.unwrap() }),
        p_best: ahead.map_or(1.0, |a| (0.5 + (a - 1.0) * 12.0).min(1.0)),
        runner_up: next.map(|c| choice(c)),
        over_runner_up: ahead,
        flips: match next {
            Some(n) if ahead.unwrap() < 1.05 => vec![Flip {
                key: "all-reduce".to_owned(),
                input: "all-reduce time".to_owned(),
                change: "+30 %".to_owned(),
                best_after: choice(n),
                loss: 0.012,
            }],
            _ => vec![],
        },
        candidates: column.iter().map(|c| CandidateGain { choice: choice(c), speedup: c.speedup.unwrap() }).collect(),
    }
}

/// The run of a plan.
pub fn run(plan: &Plan) -> (Summary, Priced) {
    let (mut cells, mut answers, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for &(name, anchor) in &plan.anchors {
        for &context in &plan.contexts {
            for &users in &plan.users {
                let column = column(plan, (name, anchor), (context, users));
                if u64::from(users) * u64::from(context) <= plan.room {
                    answers.push(answer(&column));
                    cells.extend(column);
                } else {
                    let cap = (plan.room / u64::from(context)) as u32;
                    refused.extend(column.iter().map(|c| RefusedCell {
                        acceptance: name.to_owned(),
                        context,
                        concurrency: users,
                        choice: choice(c),
                        reason: format!("the KV of {users} requests does not fit; lower the cap to {cap}"),
                        missing_bytes: Some(2e10),
                        largest_cap: Some(cap),
                    }));
                }
            }
        }
    }
    let context = if plan.contexts.contains(&8192) { 8192 } else { plan.contexts.first().copied().unwrap_or(8192) };
    let breakdowns = plan.users.iter().flat_map(|&users| {
        [1u32, 9, 17, 33, 65].map(|rows| PricedBreakdown {
            label: format!("{users} users, {rows} rows"),
            requests: users,
            rows,
            context,
            draft: rows > 1,
            ops: ops(users, f64::from(rows), context, rows > 1),
        })
    });
    let curves = [1, 8, 32, 128].map(|users| PricedCurve {
        label: format!("{users} users"),
        hardware: "b300-sxm6".to_owned(),
        deployment: "sglang-0.5.14-b300-tp8".to_owned(),
        context,
        concurrency: users,
        error: Some(0.11),
        points: (1..=65)
            .map(|rows: u32| {
                let padded = (rows * users).next_multiple_of(8);
                let ms = step_ms(users, f64::from(padded) / f64::from(users), context, true);
                PricedPoint {
                    rows,
                    padded_rows: padded,
                    bound_ms: Some(0.36 * step_ms(users, f64::from(rows), context, true)),
                    table_ms: Some(ms),
                    calibrated_ms: None,
                    measured_ms: (users == 8 && rows % 16 == 1).then_some(ms * 1.06),
                    experts: Some(100.0),
                    in_domain: padded <= 4096,
                }
            })
            .collect(),
    });
    let u = |t: f64| 384.0 * (1.0 - (1.0 - 8.0 / 384.0f64).powf(t));
    let form = |model: &str, power: f64, scale: f64| PricedExperts {
        model: model.to_owned(),
        points: (1..=65).map(|rows| ExpertPoint { rows, u: scale * u(f64::from(rows).powf(power)) }).collect(),
    };
    let priced = Priced {
        split: Vec::new(),
        schema_version: 1,
        setup: PricedSetup {
            hardware: "b300-sxm6".to_owned(),
            model: "kimi-k2.6".to_owned(),
            drafter: Some("kimi-k2.6-dflash".to_owned()),
            deployment: "sglang-0.5.14-b300-tp8".to_owned(),
            engine: "SGLang 0.5.14, CUDA graphs".to_owned(),
            ranks: 8,
            tier: "table".to_owned(),
            overhead_scale: 1.0,
            experts: Some("correlated".to_owned()),
            arrivals: "closed".to_owned(),
            prefill: "excluded".to_owned(),
            describe: vec!["MoE layer: SGLang 0.5.14 on B300, Marlin INT4, TP8, balanced rows".to_owned()],
            not_modelled: vec!["NVFP4 weights".to_owned(), "expert parallelism".to_owned()],
            hypothetical: Some("the default MLA kernel of this engine verifies causally and takes no tree".to_owned()),
            digest: "3f1c".to_owned(),
        },
        curves: curves.into(),
        breakdowns: breakdowns.collect(),
        experts: vec![
            form("uniform", 1.0, 1.0),
            form("skewed", 1.0, 0.86),
            form("correlated", 0.79, 0.95),
            PricedExperts {
                model: "public chains".to_owned(),
                points: vec![ExpertPoint { rows: 8, u: 39.4 }, ExpertPoint { rows: 15, u: 58.9 }],
            },
        ],
        acceptances: plan
            .anchors
            .iter()
            .map(|(name, t)| PricedAcceptance {
                name: (*name).to_owned(),
                kind: "process".to_owned(),
                source: "model card of Kimi-K2.5-DFlash, block 8, thinking on".to_owned(),
                anchor_tau: Some(*t),
                anchor_policy: Some("chain".to_owned()),
                anchor_budget: Some(7),
                conditional: (0..7).map(|d| 0.6 + t / 20.0 - 0.04 * f64::from(d)).collect(),
            })
            .collect(),
        answers,
        refused,
        scenarios: vec![
            Scenario {
                title: "Budget 8 with graphs against 16 eager".to_owned(),
                text: "Eager mode hides what a tree costs: the step is bound by launches either way.".to_owned(),
                columns: ["deployment", "budget", "τ", "step ms", "tok/s"].map(str::to_owned).into(),
                rows: vec![
                    ["graphs", "8", "3.8", "17.1", "222"].map(str::to_owned).into(),
                    ["eager", "16", "5.8", "41.0", "141"].map(str::to_owned).into(),
                ],
            },
            Scenario {
                title: "Are 3.5–4.1 at 8 nodes and 5.3–6.4 at 16 consistent?".to_owned(),
                text:
                    "Gains of best-first trees fall with each node, so this is more than a peaked drafter gives on the \
                       same prompts, unless 8 ran as a chain."
                        .to_owned(),
                columns: Vec::new(),
                rows: Vec::new(),
            },
        ],
    };
    let summary = Summary {
        schema_version: SCHEMA_VERSION,
        experiment: "budget-ceiling".to_owned(),
        cells,
        comparison: Comparison::default(),
        warnings: vec!["H200 figures of this engine version are transferred from B200 by datasheet ratios".to_owned()],
    };
    (summary, priced)
}
