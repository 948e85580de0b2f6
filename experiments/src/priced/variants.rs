//! Inputs moved by their stated errors.

use super::acceptance::overlap;
use super::anchor::Held;
use super::mean::{Shape, rate, shapes};
use super::{Acceptance, Candidate, Prepared, Profiles};
use crate::decide::{Part, Variant};
use rayon::prelude::*;
use treeline_sim::accept::Process;
use treeline_sim::batch::fast::{Load, Tables};
use treeline_sim::cost::{CostModel, OpScales};
use treeline_sim::experts::{self, Experts};
use treeline_sim::nested::Nested;

/// Requests and tokens that a moved process generates. It is compared with the unmoved one on the same random numbers, so
/// few walks tell them apart.
pub(super) const WALKS: (u32, u32) = (32, 160);

/// A cost model with one input moved.
#[derive(Debug, Clone)]
pub struct CostVariant {
    /// Short name of the input.
    pub key: String,
    /// The input in words.
    pub input: String,
    /// By how much it was moved.
    pub change: String,
    /// The model then.
    pub cost: CostModel,
    /// How experts are counted then, where that is what was moved: mean shapes hold their own count.
    pub experts: Option<Experts>,
}

/// Mean shapes under a moved parameter or rate of the process, in the order of the candidates.
#[derive(Debug, Clone, PartialEq)]
pub struct ShapeVariant {
    /// Key of the parameter, or of a rate.
    pub key: String,
    /// Whose error it is: a rate's is of its counting, a parameter's of the model.
    pub part: Part,
    /// By how much it was moved.
    pub change: String,
    /// The shapes then.
    pub shapes: Vec<Option<Shape>>,
}

/// Every input of the cost model with a stated error, at both ends; and the other ways of counting experts, since nobody
/// has published this model's.
#[must_use]
pub fn cost_variants(profiles: &Profiles, base: &CostModel) -> Vec<CostVariant> {
    let tier = profiles.tier();
    let own = profiles.experts.as_ref().map(|e| e.0.clone());
    let mut out = Vec::new();
    for error in base.errors() {
        for sign in [-1.0, 1.0] {
            let mut scales = OpScales::default();
            let factor = 1.0 + sign * error.relative;
            let Some(field) = field(&mut scales, error.input) else { continue };
            *field = factor;
            // What was built once with other factors can be built again.
            let Ok(cost) = profiles.cost_with(tier, scales, own.clone()) else { continue };
            out.push(CostVariant {
                key: error.input.to_owned(),
                input: format!("time of {}", words(error.input)),
                change: format!("{:+.0} % ({})", 100.0 * sign * error.relative, error.source),
                cost,
                experts: None,
            });
        }
    }
    if let Some(own) = &own {
        for name in experts::shipped() {
            let Ok((other, _)) = experts::experts(name, std::path::Path::new(".")) else { continue };
            if other == *own {
                continue;
            }
            let Ok(cost) = profiles.cost_with(tier, OpScales::default(), Some(other.clone())) else { continue };
            out.push(CostVariant {
                key: "experts".to_owned(),
                input: "distinct experts".to_owned(),
                change: format!("counted as {name}"),
                cost,
                experts: Some(other),
            });
        }
    }
    out
}

/// The factor of an input.
fn field<'s>(scales: &'s mut OpScales, input: &str) -> Option<&'s mut f64> {
    Some(match input {
        "moe" => &mut scales.moe,
        "allreduce" => &mut scales.allreduce,
        "attention" => &mut scales.attention,
        "gemm" => &mut scales.gemm,
        "small" => &mut scales.small,
        "draft" => &mut scales.draft,
        "host" => &mut scales.host,
        _ => return None,
    })
}

fn words(input: &str) -> &str {
    match input {
        "moe" => "the experts",
        "allreduce" => "all-reduces",
        "attention" => "attention",
        "gemm" => "dense products",
        "small" => "small kernels",
        "draft" => "the drafter",
        "host" => "the host",
        other => other,
    }
}

/// The mean shapes of one acceptance, and how they move.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ShapeVariants {
    /// On the trace itself.
    pub own: Vec<Option<Shape>>,
    /// The same trace with experts counted in another way, by the words of that variant.
    pub counted: Vec<(String, Vec<Option<Shape>>)>,
    /// On the few walks that variants are compared on, unmoved.
    pub base: Vec<Option<Shape>>,
    /// And moved.
    pub moved: Vec<ShapeVariant>,
}

/// Mean shapes of `acceptance`, and those under every variant of its process.
#[must_use]
pub fn shape_variants(
    acceptance: &Acceptance,
    tables: &[Tables<'_>],
    candidates: &[Candidate],
    experts: Option<&Experts>,
    costs: &[CostVariant],
    load: &Load<'_>,
    seed: u64,
) -> ShapeVariants {
    let over = |tables: &[Tables<'_>], experts: Option<&Experts>, load: &Load<'_>| {
        let mut out = vec![None; candidates.len()];
        for t in tables {
            for (slot, shape) in out.iter_mut().zip(shapes(t, candidates, experts, load, seed)) {
                *slot = slot.or(shape);
            }
        }
        out
    };
    let mut out = ShapeVariants { own: over(tables, experts, load), ..ShapeVariants::default() };
    let counted = costs.iter().filter_map(|c| Some((c.change.clone(), over(tables, Some(c.experts.as_ref()?), load))));
    out.counted = counted.collect();
    let Some(process) = acceptance.process.as_ref().filter(|_| acceptance.variants) else { return out };
    let spines: Vec<(u32, u32)> = tables.iter().map(|t| (t.nested().max_nodes(), t.nested().spine())).collect();
    let few = Load { response: None, requests: None, ..*load };
    let walk = |process: &Process| -> Option<Vec<Option<Shape>>> {
        let trace = process.generate(WALKS.0, WALKS.1, seed).ok()?;
        let nested = spines.iter().map(|&(nodes, spine)| Nested::build(&trace, nodes, spine).ok());
        let nested: Vec<Nested> = nested.collect::<Option<_>>()?;
        let tables: Vec<Tables<'_>> =
            nested.iter().map(|n| Tables::new(n).with_overlap(overlap(process, WALKS.0, seed))).collect();
        Some(over(&tables, experts, &few))
    };
    let Some(base) = walk(process) else { return out };
    out.base = base;
    let parameters = process.variants().into_iter().map(|v| (Part::Model, v));
    let inputs: Vec<_> = process.rate_variants().into_iter().map(|v| (Part::Sampling, v)).chain(parameters).collect();
    // An anchor of a tree is of the tree: a moved process is scaled to it again.
    let held = Held::of(process, acceptance.anchor.as_ref(), WALKS, seed);
    let walk = |part: Part, moved: &Process| match held.filter(|_| part == Part::Model) {
        Some(held) => walk(&held.again(moved)),
        None => walk(moved),
    };
    let moved = inputs.into_par_iter().filter_map(|(part, v)| {
        Some(ShapeVariant { key: v.parameter, part, change: v.change, shapes: walk(part, &v.process)? })
    });
    out.moved = moved.collect();
    out
}

/// Where rates are asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At<'a> {
    /// The prices, unmoved.
    pub base: &'a CostModel,
    /// Rows of one request's draft pass.
    pub draft_rows: u32,
    /// Positions before a response.
    pub context: f64,
    /// Requests at once.
    pub concurrency: u32,
}

/// Rates under each cost variant, at shapes that a replay measured.
#[must_use]
pub fn replayed_variants(
    p: &Prepared<'_>,
    shapes: &[Option<Shape>],
    rates: &[f64],
    context: u32,
    concurrency: u32,
) -> Vec<Variant> {
    let at = At { base: &p.cost, draft_rows: p.profiles.draft_rows(), context: f64::from(context), concurrency };
    ShapeVariants { own: shapes.to_vec(), ..ShapeVariants::default() }.cost_rates(&at, &p.costs, rates)
}

/// A moved input of a process in words.
pub(crate) fn moved_input(key: &str) -> String {
    match key.strip_prefix("conditional.") {
        Some(position) => format!("rate at position {position}"),
        None => key.replace('_', " "),
    }
}

impl At<'_> {
    fn price(&self, cost: &CostModel, shapes: &[Option<Shape>]) -> Vec<Option<f64>> {
        let one = |s: &Shape| rate(cost, s, self.draft_rows, self.context, self.concurrency);
        shapes.iter().map(|s| s.as_ref().map(one)).collect()
    }
}

/// Simulated `rates` times the quotient of two mean rates. A candidate without a mean shape keeps its distance to the best
/// fixed one.
fn moved(rates: &[f64], now: &[Option<f64>], before: &[Option<f64>]) -> Vec<f64> {
    let quotient = |i: usize| Some(now.get(i).copied().flatten()? / before.get(i).copied().flatten()?);
    let with = |i: usize| quotient(i).map(|q| rates[i] * q);
    let best = |rates: &mut dyn Iterator<Item = f64>| rates.filter(|r| r.is_finite()).fold(0.0, f64::max);
    let after = best(&mut (0..rates.len()).filter_map(with));
    let until = best(&mut (0..rates.len()).filter(|i| with(*i).is_some()).map(|i| rates[i]));
    (0..rates.len()).map(|i| with(i).unwrap_or(rates[i] * after / until)).collect()
}

impl ShapeVariants {
    /// Rates under each cost variant, from the simulated `rates` of all candidates in tokens per ms and user.
    pub(crate) fn cost_rates(&self, at: &At<'_>, costs: &[CostVariant], rates: &[f64]) -> Vec<Variant> {
        let own = at.price(at.base, &self.own);
        let one = |c: &CostVariant| {
            let counted = self.counted.iter().find(|n| c.experts.is_some() && n.0 == c.change);
            let now = at.price(&c.cost, counted.map_or(&self.own, |n| &n.1));
            Variant {
                key: c.key.clone(),
                input: c.input.clone(),
                change: c.change.clone(),
                part: Part::Transfer,
                rates: moved(rates, &now, &own),
            }
        };
        costs.iter().map(one).collect()
    }

    /// The same under each moved parameter and rate of the process.
    pub(crate) fn process_rates(&self, at: &At<'_>, rates: &[f64]) -> Vec<Variant> {
        let base = at.price(at.base, &self.base);
        let one = |v: &ShapeVariant| Variant {
            key: v.key.clone(),
            input: moved_input(&v.key),
            change: v.change.clone(),
            part: v.part,
            rates: moved(rates, &at.price(at.base, &v.shapes), &base),
        };
        self.moved.iter().map(one).collect()
    }
}
