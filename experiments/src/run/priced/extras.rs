//! What `priced.json` holds beside the answers: curves, breakdowns, experts.

use crate::config::{ArrivalsSpec, PricedRun};
use crate::priced::{Candidate, Profiles};
use crate::results::{
    Answer, ExpertPoint, PricedBreakdown, PricedCurve, PricedExperts, PricedOp, PricedPoint, PricedSetup,
};
use crate::run::figures::phase_name;
use treeline_sim::cost::{CostModel, OpScales, StepQuery, Tier};
use treeline_sim::experts;

/// The context that breakdowns are drawn at, or the nearest that the run has.
const HEADLINE: u32 = 8192;
/// Rows per request of the breakdowns beside those of the best policies.
const ROWS: [u32; 5] = [1, 9, 17, 33, 65];
/// Rows per request that curves hold at the most.
const MOST_ROWS: u32 = 257;

/// What was priced, in words.
pub(super) fn setup(profiles: &Profiles, run: &PricedRun, cost: &CostModel) -> PricedSetup {
    let d = &profiles.deployment;
    let lines = |text: &str| text.lines().filter(|l| !l.trim().is_empty()).map(str::to_owned).collect();
    PricedSetup {
        hardware: profiles.machine(),
        model: profiles.model.name.clone(),
        drafter: Some(profiles.drafter.name.clone()),
        deployment: d.name.clone(),
        engine: format!("{} {}", d.engine.key(), d.version),
        ranks: d.ranks,
        tier: profiles.spec.tier.name().to_owned(),
        overhead_scale: profiles.spec.overhead_scale,
        experts: profiles.spec.experts.clone(),
        arrivals: match run.arrivals {
            ArrivalsSpec::Closed => "closed".to_owned(),
            ArrivalsSpec::Poisson { rate } => {
                format!("poisson, {rate} request{} a second", if rate == 1.0 { "" } else { "s" })
            }
        },
        prefill: profiles.spec.prefill.name().to_owned(),
        describe: lines(cost.describe()),
        not_modelled: d.not_modelled.iter().cloned().chain(other_tables(profiles)).collect(),
        hypothetical: (!d.tree_attention.native).then(|| d.tree_attention.note.clone()),
        digest: cost.digest().to_owned(),
    }
}

/// What tier `table` prices by the tables of another engine or version.
fn other_tables(profiles: &Profiles) -> Vec<String> {
    if profiles.tier() == Tier::Table { profiles.deployment.borrowed() } else { Vec::new() }
}

/// The same deployment in the tiers that need no more than it has.
struct Tiers {
    bound: Option<CostModel>,
    table: Option<CostModel>,
    calibrated: Option<CostModel>,
}

impl Tiers {
    fn of(profiles: &Profiles) -> Self {
        let own = profiles.experts.as_ref().map(|e| e.0.clone());
        // A tier without its tables or file has no curve.
        let tier = |t| profiles.cost_with(t, OpScales::default(), own.clone()).ok();
        Self { bound: tier(Tier::Bound), table: tier(Tier::Table), calibrated: tier(Tier::Calibrated) }
    }
}

/// One step of `concurrency` requests with `rows` rows each; a single row is plain decoding.
fn query(profiles: &Profiles, concurrency: u32, rows: u32, context: u32) -> StepQuery {
    match rows {
        1 => StepQuery::plain(concurrency, context),
        rows => StepQuery::block(concurrency, rows, context, profiles.draft_rows()),
    }
}

/// Step time against rows per request at every context and concurrency of the run.
pub(super) fn curves(
    profiles: &Profiles,
    cost: &CostModel,
    contexts: &[u32],
    concurrency: &[u32],
    candidates: &[Candidate],
) -> Vec<PricedCurve> {
    let tiers = Tiers::of(profiles);
    let most = candidates.iter().map(|c| c.budget + 1).max().unwrap_or(1).clamp(65, MOST_ROWS);
    let mut rows: Vec<u32> = (1..=most).filter(|r| *r <= 17 || r % 2 == 1 && *r <= 65 || r % 16 == 1).collect();
    rows.extend(candidates.iter().map(|c| c.budget + 1).filter(|r| *r <= most));
    rows.sort_unstable();
    rows.dedup();
    let error = cost.step_error().map(|e| e.relative);
    let mut out = Vec::new();
    for &context in contexts {
        for &concurrency in concurrency {
            let point = |&rows: &u32| {
                let q = query(profiles, concurrency, rows, context);
                let ms = |m: &Option<CostModel>| m.as_ref().map(|m| m.price(&q).ms());
                let price = cost.price(&q);
                PricedPoint {
                    rows,
                    padded_rows: price.padded_rows,
                    bound_ms: ms(&tiers.bound),
                    table_ms: ms(&tiers.table),
                    calibrated_ms: ms(&tiers.calibrated),
                    measured_ms: None,
                    experts: price.experts,
                    in_domain: price.in_domain,
                }
            };
            out.push(PricedCurve {
                label: format!("context {context}, concurrency {concurrency}"),
                hardware: profiles.hardware.name.clone(),
                deployment: profiles.deployment.name.clone(),
                context,
                concurrency,
                error,
                points: rows.iter().map(point).collect(),
            });
        }
    }
    out
}

/// Steps taken apart at the headline context: every concurrency, plain, at the usual rows, and at those of the best.
pub(super) fn breakdowns(
    profiles: &Profiles,
    cost: &CostModel,
    contexts: &[u32],
    concurrency: &[u32],
    answers: &[Answer],
) -> Vec<PricedBreakdown> {
    let Some(&context) = contexts.iter().min_by_key(|c| c.abs_diff(HEADLINE)) else { return Vec::new() };
    let mut out = Vec::new();
    for &requests in concurrency {
        let here = answers.iter().filter(|a| a.context == context && a.concurrency == requests);
        let best = here.flat_map(|a| {
            let fixed = a.best_fixed.as_ref().map(|f| f.choice.budget + 1);
            std::iter::once((a.rows.round() as u32).max(1)).chain(fixed)
        });
        let mut rows: Vec<u32> = ROWS.into_iter().chain(best).collect();
        rows.sort_unstable();
        rows.dedup();
        for rows in rows {
            let lines = cost.breakdown(&query(profiles, requests, rows, context));
            let op = |l: treeline_sim::cost::OpLine| PricedOp {
                phase: phase_name(l.phase),
                calls: l.calls,
                ms: l.us / 1e3,
                bound_ms: l.bound_us / 1e3,
                bytes: l.bytes,
                flops: l.flops,
                limit: l.limit.name().to_owned(),
                tier: l.tier.name().to_owned(),
                in_domain: l.in_domain,
                name: l.name,
            };
            out.push(PricedBreakdown {
                label: format!("{requests} × {rows} rows behind {context} tokens"),
                requests,
                rows,
                context,
                draft: rows > 1,
                ops: lines.into_iter().map(op).collect(),
            });
        }
    }
    out
}

/// Distinct experts that the rows of one request touch, by every form that ships and by the run's own.
pub(super) fn experts(profiles: &Profiles) -> Vec<PricedExperts> {
    let (Some(moe), Some((own, _))) = (&profiles.model.moe, &profiles.experts) else { return Vec::new() };
    let named = profiles.spec.experts.clone().unwrap_or_default();
    let others = experts::shipped().into_iter().filter(|n| *n != named).filter_map(|name| {
        let (model, _) = experts::experts(name, std::path::Path::new(".")).ok()?;
        Some((name.to_owned(), model))
    });
    let all = std::iter::once((named.clone(), own.clone())).chain(others);
    let curve = |(name, model): (String, experts::Experts)| {
        let u = |rows: u32| model.distinct(moe.experts, moe.top_k, model.effective_rows(1, rows));
        let points = (1..=65).map(|rows| ExpertPoint { rows, u: u(rows) }).collect();
        PricedExperts { model: name, points }
    };
    all.filter(|(_, m)| m.check(moe.experts, moe.top_k).is_ok()).map(curve).collect()
}
