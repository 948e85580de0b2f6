//! A priced run with the shape and size of a budget-ceiling grid. The figures come from a small formula of the tests: they
//! have the shapes of real ones and say nothing about any machine.

use crate::steps::{cell, ops, step_ms, tau};
use treeline::results::{
    Answer, CandidateGain, Cell, Choice, Comparison, ErrorParts, ExpertPoint, Flip, PRICED_VERSION, Priced,
    PricedAcceptance, PricedBreakdown, PricedCurve, PricedExperts, PricedPoint, PricedSetup, RefusedCell,
    SCHEMA_VERSION, Scenario, Summary,
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
    let parts = ErrorParts { sampling: Some(0.01), model: Some(0.03), transfer: Some(0.02) };
    let half = speedup * (0.01f64.powi(2) + 0.03f64.powi(2) + 0.02f64.powi(2)).sqrt();
    let ahead = next.map(|n| speedup / n.speedup.unwrap());
    Answer {
        acceptance: best.acceptance.clone().unwrap(),
        context: best.context,
        concurrency: best.concurrency,
        best: choice(best),
        tau: best.tau.unwrap(),
        rows: best.rows_mean.unwrap(),
        speedup,
        requests: 200,
        lo: Some(speedup - half),
        hi: Some(speedup + half),
        parts,
        left_out: Vec::new(),
        over_reference: column.iter().find(|c| c.budget == 8).map(|c| speedup / c.speedup.unwrap()),
        reference: Some(Choice { policy: "best-first".to_owned(), budget: 8 }),
        best_fixed: order
            .iter()
            .find(|c| c.policy != "batch-wide")
            .map(|c| CandidateGain { choice: choice(c), speedup: c.speedup.unwrap() }),
        p_best: Some(ahead.map_or(1.0, |a| (0.5 + (a - 1.0) * 12.0).min(1.0))),
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
        schema_version: PRICED_VERSION,
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
        failed: Vec::new(),
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
