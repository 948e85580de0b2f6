//! The compiled model: laws of both passes under the bound and under the tier, and their sum at a step.

use super::calibrated::{self, Domain, HostLaw, HostOp};
use super::describe::Words;
use super::distinct::Distinct;
use super::draft::{DraftPlan, draft};
use super::error::CostError;
use super::law::PassLaw;
use super::line::Tier;
use super::pads::Pads;
use super::passes::Passes;
use super::scales::OpScales;
use super::setup::CostSetup;
use super::tables::Lookups;
use super::target::{Formulation, prompt_flops, target};
use super::work::Roof;
use crate::experts::Experts;
use crate::power::Power;
use crate::profile::{Attention, Deployment, Overheads, Unit};
use treeline_core::log::Phase;

/// A deployment, compiled for one tier: a price is a handful of look-ups. Prices never fail; what lies outside of what was
/// measured is flagged, and refused by [`price_checked`](Self::price_checked) unless extrapolation was allowed.
#[derive(Debug, Clone)]
pub struct CostModel {
    pub(super) deployment: Deployment,
    pub(super) tier: Tier,
    pub(super) scale: f64,
    pub(super) allow_extrapolation: bool,
    pub(super) roof: Roof,
    pub(super) formulation: Formulation,
    pub(super) target: Passes,
    pub(super) draft: Option<(DraftPlan, Passes)>,
    pub(super) experts: Option<Experts>,
    pub(super) distinct: Option<Distinct>,
    /// Operations of one pair of prompt tokens.
    pub(super) prompt_flops: f64,
    pub(super) power: Power,
    /// Host phases of the tier; the bound has none.
    pub(super) host: HostLaw,
    /// Requests and contexts that a calibration covers.
    pub(super) covered: Option<Domain>,
    pub(super) words: Words,
    pads: Pads,
    pub(super) ends: Vec<u32>,
}

impl CostModel {
    /// Compiles the model: looks every op up once at every row count.
    ///
    /// # Errors
    /// Profiles that contradict each other, a table that does not exist, a missing calibration, a number out of range.
    pub fn new(setup: &CostSetup<'_>) -> Result<Self, CostError> {
        setup.check()?;
        let (d, model) = (setup.deployment, setup.model);
        let roof = Roof::new(setup.hardware, d.ranks);
        let lookups = match setup.tier {
            Tier::Table => Some(Lookups::new(setup, setup.experts.as_ref(), roof)?),
            Tier::Bound | Tier::Calibrated => None,
        };
        let latent = matches!(model.attention, Attention::Mla { .. });
        let formulation = if lookups.is_some() && latent && d.tables.attention_module {
            Formulation::Module
        } else {
            Formulation::Kernels
        };
        let moe_worst = lookups.as_ref().map_or(Ok(None), |l| l.moe_worst(model))?;
        let pass = target(model, d, formulation);
        let plan = setup.drafter.map(|drafter| draft(drafter, model, d));
        let calibrated = match (setup.tier, setup.calibration) {
            (Tier::Calibrated, Some(c)) => Some((calibrated::passes(c, &roof, setup.scales), c)),
            _ => None,
        };
        let call = lookups.as_ref().and_then(Lookups::eager_call);
        let mut tier = match &lookups {
            Some(l) => Some(l.target(model, &pass, formulation)?),
            None => calibrated.as_ref().map(|((verify, _, _), _)| verify.clone()),
        };
        if let Some(law) = &mut tier {
            law.overlap_rows = d.shared_stream_rows;
            law.launches_us = eager(d, model.layers, call, setup.scales);
        }
        let mut passes = None;
        if let (Some(plan), Some(drafter)) = (plan, setup.drafter) {
            let mut tier = match (&lookups, &calibrated) {
                (Some(l), _) => Some(l.draft(drafter, &plan.pass)?),
                (None, Some(((_, Some(law), _), _))) => Some(law.clone()),
                (None, Some(((_, None, _), _))) => {
                    return Err(CostError::Needs {
                        tier: setup.tier,
                        what: format!("draft ops in the calibration to price {}", drafter.name),
                        help: "calibrate with the drafter, or name none".into(),
                    });
                }
                (None, None) => None,
            };
            if let Some(law) = &mut tier {
                law.launches_us = eager(d, drafter.layers, call, setup.scales);
            }
            let bound = PassLaw::bound(&plan.pass, &roof);
            passes = Some((Passes::new(plan.pass.clone(), bound, tier), plan));
        }
        let host = match &calibrated {
            Some(((_, _, host), _)) => host.clone(),
            None => overheads(&d.overheads, setup.scales),
        };
        let bound = PassLaw::bound(&pass, &roof);
        Ok(Self {
            deployment: d.clone(),
            tier: setup.tier,
            scale: if setup.tier == Tier::Bound { 0.0 } else { setup.overhead_scale },
            allow_extrapolation: setup.allow_extrapolation,
            roof,
            formulation,
            target: Passes::new(pass, bound, tier),
            draft: passes.map(|(passes, plan): (Passes, DraftPlan)| (plan, passes)),
            distinct: setup.experts.as_ref().zip(model.moe.as_ref()).map(|(e, moe)| {
                let at = crate::experts::Distinct::new(e.popularity(), moe.experts, moe.top_k);
                Distinct::new(moe.experts, moe.top_k, |rows| at.at(rows), |rows| e.effective_rows(1, rows))
            }),
            experts: setup.experts.clone(),
            prompt_flops: prompt_flops(model, d.ranks),
            power: Power::of(setup.hardware),
            host,
            covered: calibrated.as_ref().map(|(_, c)| c.domain),
            words: Words::of(setup, formulation, moe_worst),
            pads: Pads::new(d),
            ends: match &d.graphs {
                Some(graphs) if graphs.unit == Unit::Rows => graphs.ends.clone(),
                _ => Vec::new(),
            },
        })
    }

    /// Tensor-parallel ranks.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.deployment.ranks
    }

    /// The tier.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// How many distinct experts rows touch; `None` for dense targets.
    #[must_use]
    pub fn experts(&self) -> Option<&Experts> {
        self.experts.as_ref()
    }

    /// Ends of the graph buckets in Σ rows, ascending; empty where steps are not padded to row counts (eager, or graphs
    /// captured by requests).
    #[must_use]
    pub fn bucket_ends(&self) -> &[u32] {
        &self.ends
    }

    /// Rows that a pass of `rows` rows over `requests` requests runs with, and whether no graph holds it.
    #[must_use]
    pub fn padded_rows(&self, requests: u32, rows: u32) -> (u32, bool) {
        self.pads.rows(requests, rows)
    }
}

/// Host time of an eager pass's launches, µs. A layer's two all-reduces take the measured time of such a call, where there
/// is one: registering and signalling is more than a launch.
fn eager(d: &Deployment, layers: u32, all_reduce: Option<f64>, scales: OpScales) -> f64 {
    let (o, launches) = (&d.overheads, d.overheads.launches_per_layer);
    let layer = match all_reduce {
        Some(us) => o.launch_us * f64::from(launches.saturating_sub(2)) + 2.0 * us.max(o.launch_us),
        None => o.launch_us * f64::from(launches),
    };
    layer * f64::from(layers) * scales.host
}

fn overheads(o: &Overheads, scales: OpScales) -> HostLaw {
    let one = |name: &str, phase, drafted, us: f64| HostOp {
        name: name.to_owned(),
        phase,
        drafted,
        us: vec![(1, us * scales.host)],
    };
    HostLaw {
        ops: vec![
            one("build trees", Phase::Tree, true, o.tree_us),
            one("walk verdicts", Phase::Walk, true, o.walk_us),
            one("move accepted cache entries", Phase::Commit, true, o.commit_us),
            one("host between steps", Phase::Host, false, o.host_ms * 1e3),
            one("host of a round", Phase::Host, true, o.round_host_ms * 1e3),
        ],
    }
}
