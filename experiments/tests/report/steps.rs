//! Steps and cells of the made-up machine: a small formula with the shapes of real figures.

use serde_json::json;
use treeline::results::{Cell, PricedOp, Source};

/// Operations of a step in ms.
pub fn ops(users: u32, rows: f64, context: u32, draft: bool) -> Vec<PricedOp> {
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

/// Time of a step in ms.
pub fn step_ms(users: u32, rows: f64, context: u32, draft: bool) -> f64 {
    ops(users, rows, context, draft).iter().map(|o| o.ms).sum()
}

/// τ of a tree; a chain of seven has that of its source.
pub fn tau(anchor: f64, budget: u32) -> f64 {
    if budget == 0 { 1.0 } else { 1.0 + (anchor - 1.0) * (1.6 - 1.0 * (-f64::from(budget) / 14.0).exp()) }
}

/// The cell of a policy at (context, users).
pub fn cell(name: &str, policy: &str, budget: u32, rows: f64, tau: f64, at: (u32, u32)) -> Cell {
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
        busy: None,
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
