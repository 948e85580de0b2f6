//! The `table` tier of a pass: every op looked up once at every slot.

use super::attention::{AttentionLaw, Timing};
use super::error::CostError;
use super::law::{ExpertLaw, PassLaw, RowLaw};
use super::line::Origin;
use super::op::{AttentionOp, ExpertOp, Pass, RowOp};
use super::scales::{Class, OpScales};
use super::setup::CostSetup;
use super::slots::{SLOTS, Slot};
use super::target::{Formulation, IN_MODULE};
use super::tiles::Tiles;
use super::work::{Roof, Work};
use crate::experts::{Experts, Popularity};
use crate::optable::{
    AllReduceTable, ArKey, BmmKey, BmmSide, BmmTable, Collective, GemmKey, GemmTable, Launch, Looked, MlaKey, MlaPart,
    MoeKey, MoeShape, MoeTable, OpTables, Plane, TableError, Wanted,
};
use crate::profile::{Allreduce, Attention, Deployment, Drafter, Model, TableRef};

/// Looks up ops for one deployment.
pub(super) struct Lookups<'t> {
    tables: &'t OpTables,
    deployment: &'t Deployment,
    system: &'t str,
    gemm: &'t GemmTable,
    allreduce: Option<&'t AllReduceTable>,
    /// Host time of an all-reduce that no graph holds, µs.
    eager_call: Option<f64>,
    roof: Roof,
    scales: OpScales,
    experts: Option<&'t Experts>,
}

fn refused(op: &str, error: &TableError, key: &str) -> CostError {
    CostError::Table {
        op: op.into(),
        why: error.to_string(),
        help: format!("name a measured engine and version in `tables.{key}` of the deployment, or use tier `bound`"),
    }
}

fn wanted<'k>(system: &'k str, table: &'k TableRef) -> Wanted<'k> {
    Wanted { system, engine: table.engine.key(), version: Some(&table.version), kernel: table.kernel.as_deref() }
}

impl<'t> Lookups<'t> {
    pub(super) fn new(setup: &CostSetup<'t>, experts: Option<&'t Experts>, roof: Roof) -> Result<Self, CostError> {
        let (tables, hardware, deployment) = (setup.tables, setup.hardware, setup.deployment);
        let Some(system) = hardware.system.as_deref() else {
            return Err(CostError::Needs {
                tier: super::Tier::Table,
                what: format!("op tables, and hardware {} names none: its key `system` is missing", hardware.name),
                help: format!(
                    "set `system` of the hardware profile to the machine whose tables are as good as its own, one of {}, or \
                     use tier `bound` or a calibration",
                    tables.systems().join(", ")
                ),
            });
        };
        let from = wanted(system, &deployment.tables.gemm);
        let gemm =
            tables.gemm(&GemmKey { from, dtype: "bfloat16" }).map_err(|e| refused("dense products", &e, "gemm"))?;
        let mut eager_call = None;
        let allreduce = match (&deployment.allreduce, &deployment.tables.allreduce) {
            (Allreduce::Table { switch_bytes }, Some(table)) if deployment.ranks > 1 => {
                let found = collective(tables, system, table, deployment.ranks)?;
                switches_agree(deployment, switch_bytes, found)?;
                eager_call = host_of_a_call(tables, system, table, deployment.ranks);
                Some(found)
            }
            (Allreduce::Table { .. }, None) if deployment.ranks > 1 => {
                return Err(CostError::Profile {
                    what: format!(
                        "deployment {}: all-reduce by table, but `tables.allreduce` is missing",
                        deployment.name
                    ),
                    help: "name engine and version of the table, or another `allreduce.algorithm`".into(),
                });
            }
            _ => None,
        };
        Ok(Self { tables, deployment, system, gemm, allreduce, eager_call, roof, scales: setup.scales, experts })
    }

    fn kv(&self) -> &'static str {
        if self.deployment.kv_bytes_per_element == 1.0 { "fp8" } else { "bfloat16" }
    }

    fn mla(&self, model: &Model, part: MlaPart) -> Result<Plane, CostError> {
        let from = wanted(self.system, &self.deployment.tables.attention);
        let heads = model.attention.heads().div_ceil(self.deployment.ranks.max(1));
        let table = self.tables.mla(&MlaKey { from, part, kv: self.kv(), heads });
        table.map(|t| t.plane().clone()).map_err(|e| refused("attention kernel", &e, "attention"))
    }

    /// The absorbed product's table; `None` where it was not measured.
    fn absorbed(&self, op: &RowOp) -> Result<Option<&'t BmmTable>, CostError> {
        let Work::Batched { heads, post, .. } = op.work else { return Ok(None) };
        let side = if post { BmmSide::Post } else { BmmSide::Pre };
        let from = Wanted { kernel: None, ..wanted(self.system, &self.deployment.tables.gemm) };
        match self.tables.mla_bmm(&BmmKey { from, dtype: "bfloat16", side, heads }) {
            Ok(table) => Ok(Some(table)),
            Err(TableError::Missing { .. }) => Ok(None),
            Err(e) => Err(refused(&op.name, &e, "gemm")),
        }
    }

    fn time(&self, op: &RowOp, rows: f64, absorbed: Option<&BmmTable>) -> (Looked, Origin) {
        let least = self.roof.us(&op.work, rows);
        let profile = |us: f64| (Looked { us, inside: true }, Origin::Profile);
        match op.work {
            Work::Gemm { n, k, .. } => {
                // A head of more outputs than were measured runs as equal parts that were.
                let most = self.gemm.axes().0.last().copied().unwrap_or(1.0);
                let parts = (f64::from(n) / most).ceil().max(1.0);
                let looked = self.gemm.us(rows, f64::from(n) / parts, f64::from(k));
                (Looked { us: parts * looked.us, ..looked }, Origin::Table)
            }
            Work::Batched { .. } => match absorbed {
                Some(table) => (table.us(rows), Origin::Table),
                None => profile(least.max(op.fixed_us)),
            },
            Work::Element { .. } => profile((op.work.activations(rows) / self.roof.bytes_us).max(op.fixed_us)),
            Work::Gather { .. } => profile(op.fixed_us + least),
            Work::AllReduce { .. } => self.reduce(&op.work, rows),
        }
    }

    fn reduce(&self, work: &Work, rows: f64) -> (Looked, Origin) {
        let (bytes, p) = (work.bytes(rows), self.roof.ranks);
        let formula = |us: f64| (Looked { us, inside: true }, Origin::Profile);
        match (&self.deployment.allreduce, self.allreduce) {
            (Allreduce::Table { .. }, Some(table)) => (table.us(bytes), Origin::Table),
            (Allreduce::Table { .. }, None) | (Allreduce::None, _) => formula(0.0),
            (Allreduce::OneShot { alpha_us }, _) => formula(alpha_us + (p - 1.0) * bytes / self.roof.link_us),
            (Allreduce::TwoShot { alpha_us }, _) => formula(alpha_us + 2.0 * (p - 1.0) / p * bytes / self.roof.link_us),
            (Allreduce::Nvls { alpha_us, bytes_s }, _) => formula(alpha_us + bytes / (bytes_s * 1e-6)),
        }
    }

    fn row_law(&self, op: &RowOp, in_module: bool) -> Result<RowLaw, CostError> {
        let times = f64::from(op.calls) * self.scales.of(op.class);
        let mut law = RowLaw {
            op: op.clone(),
            us: vec![0.0; SLOTS],
            inside: vec![true; SLOTS],
            origin: Origin::Table,
            in_module,
        };
        let absorbed = self.absorbed(op)?;
        for at in 1..SLOTS {
            let rows = op.rows(f64::from(Slot::rows(at)));
            let (looked, origin) = self.time(op, rows, absorbed);
            law.us[at] = finite(&op.name, times * looked.us)?;
            law.inside[at] = looked.inside;
            law.origin = origin;
        }
        Ok(law)
    }

    /// The measured MoE layer.
    fn layer(&self, model: &Model) -> Result<&'t MoeTable, CostError> {
        let (Some(moe), Some(table)) = (&model.moe, &self.deployment.tables.moe) else {
            return Err(CostError::Profile {
                what: format!(
                    "deployment {}: `tables.moe` is missing, {} has experts",
                    self.deployment.name, model.name
                ),
                help: "name engine and version of the MoE table".into(),
            });
        };
        let shape = MoeShape {
            quant: moe.quant.key(),
            experts: moe.experts,
            top_k: moe.top_k,
            hidden: model.hidden,
            intermediate: moe.intermediate,
        };
        let key = MoeKey { from: wanted(self.system, table), shape, tp: self.deployment.ranks };
        self.tables.moe(&key).map_err(|e| refused("routed experts", &e, "moe"))
    }

    /// The routed experts: t0 + c·U + h(T), by the fit of the layer's balanced rows.
    fn experts(&self, model: &Model, op: &ExpertOp) -> Result<ExpertLaw, CostError> {
        let layer = self.layer(model)?;
        let (fit, times) = (layer.fit(), f64::from(op.layers) * self.scales.moe);
        let (least, most) = layer.rows();
        let mut base = vec![0.0; SLOTS];
        let mut inside = vec![true; SLOTS];
        let popularity = self.experts.map_or(&Popularity::Even, Experts::popularity);
        let tiled = Tiles::of(layer, popularity)
            .map(|tiles| tiles.tabulate((0..SLOTS).map(|at| f64::from(Slot::rows(at))), |rows| fit.h(rows)));
        for at in 1..SLOTS {
            let rows = f64::from(Slot::rows(at));
            let h = tiled.as_ref().map_or_else(|| fit.h(rows), |tiled| tiled[at]);
            base[at] = finite("routed experts", times * (fit.t0 + h))?;
            inside[at] = rows >= least && rows <= most;
        }
        Ok(ExpertLaw { base, per_expert: times * fit.c, floor: vec![0.0; SLOTS], inside, origin: Origin::Table })
    }

    /// Largest error of the experts' fit over the rows it was fitted to.
    pub(super) fn moe_worst(&self, model: &Model) -> Result<Option<f64>, CostError> {
        Ok(if model.moe.is_some() { Some(self.layer(model)?.fit().worst) } else { None })
    }

    /// The target's pass.
    pub(super) fn target(&self, model: &Model, pass: &Pass, form: Formulation) -> Result<PassLaw, CostError> {
        let module = |op: &RowOp| form == Formulation::Module && IN_MODULE.contains(&op.name.as_ref());
        let rows = pass.rows.iter().map(|op| self.row_law(op, module(op))).collect::<Result<_, _>>()?;
        let shared = pass.shared.iter().map(|op| self.row_law(op, false)).collect::<Result<_, _>>()?;
        let experts = pass.experts.as_ref().map(|op| self.experts(model, op)).transpose()?;
        let scale = self.scales.of(Class::Attention);
        let mut attention = Vec::new();
        for op in &pass.attention {
            let decode = match (model.attention, form) {
                (Attention::Mla { .. }, Formulation::Kernels) => self.mla(model, MlaPart::Kernel)?,
                (Attention::Mla { .. }, Formulation::Module) => self.mla(model, MlaPart::Module)?,
                (Attention::Gqa { heads, kv_heads, head_dim }, _) => {
                    let table = &self.deployment.tables.attention;
                    self.grouped("attention kernel", "attention", table, self.kv(), (heads, kv_heads, head_dim))?
                }
            };
            attention.push(AttentionLaw { op: *op, timing: Timing::table(decode), scale });
        }
        Ok(PassLaw::new(rows, shared, experts, attention, &self.roof))
    }

    /// The drafter's pass.
    pub(super) fn draft(&self, drafter: &Drafter, pass: &Pass) -> Result<PassLaw, CostError> {
        let rows = pass.rows.iter().map(|op| self.row_law(op, false)).collect::<Result<_, _>>()?;
        let Some(table) = &self.deployment.tables.draft_attention else {
            return Err(CostError::Profile {
                what: format!(
                    "deployment {}: `tables.draft_attention` is missing, {} has attention of its own",
                    self.deployment.name, drafter.name
                ),
                help: "name engine, version and kernel of the drafter's decode attention".into(),
            });
        };
        let shape = (drafter.heads, drafter.kv_heads, drafter.head_dim);
        let decode = self.grouped("draft attention", "draft_attention", table, "bfloat16", shape)?;
        let law = |op: &AttentionOp| AttentionLaw {
            op: *op,
            timing: Timing::table(decode.clone()),
            scale: self.scales.of(Class::Draft),
        };
        Ok(PassLaw::new(rows, Vec::new(), None, pass.attention.iter().map(law).collect(), &self.roof))
    }

    /// Host time of an all-reduce that it launches itself, µs.
    pub(super) fn eager_call(&self) -> Option<f64> {
        self.eager_call
    }

    fn grouped(
        &self,
        op: &str,
        key: &str,
        table: &TableRef,
        kv: &str,
        (heads, kv_heads, head_dim): (u32, u32, u32),
    ) -> Result<Plane, CostError> {
        let part = |n: u32| n.div_ceil(self.deployment.ranks.max(1)).max(1);
        let (heads, kv_heads) = (part(heads), part(kv_heads));
        let from = wanted(self.system, table);
        let found = self.tables.attention(&crate::optable::AttentionKey { from, kv, heads, kv_heads, head_dim });
        found.map(|t| t.plane().clone()).map_err(|e| refused(op, &e, key))
    }
}

fn collective<'t>(
    tables: &'t OpTables,
    system: &str,
    table: &TableRef,
    ranks: u32,
) -> Result<&'t AllReduceTable, CostError> {
    let key = |launch| ArKey { from: wanted(system, table), op: Collective::AllReduce, launch, ranks };
    // Packages that do not say how they launched measured inside their own graphs.
    let found = tables.allreduce(&key(Launch::Graph));
    let found = match found {
        Err(TableError::Missing { .. }) => tables.allreduce(&key(Launch::Unstated)).or(found),
        other => other,
    };
    found.map_err(|e| refused("all-reduce", &e, "allreduce"))
}

/// What the host needs for an all-reduce that it launches itself, µs: tables of eager calls are flat at it until the message
/// takes longer. `None` where no table says.
fn host_of_a_call(tables: &OpTables, system: &str, table: &TableRef, ranks: u32) -> Option<f64> {
    let key = ArKey { from: wanted(system, table), op: Collective::AllReduce, launch: Launch::Eager, ranks };
    tables.allreduce(&key).ok()?.points().iter().map(|p| p.1).reduce(f64::min)
}

/// The profile's thresholds are those of the table that prices it: a profile that states others expects what it does not get.
fn switches_agree(d: &Deployment, stated: &[u64], table: &AllReduceTable) -> Result<(), CostError> {
    let measured: Vec<u64> = table.switches().iter().map(|s| *s as u64).collect();
    if measured == stated {
        return Ok(());
    }
    Err(CostError::Profile {
        what: format!(
            "deployment {}: `allreduce.switch_bytes` is {stated:?}, but the measured all-reduce changes its algorithm at {measured:?} bytes",
            d.name
        ),
        help: "state the table's, or describe the all-reduce by another `algorithm`".into(),
    })
}

fn finite(op: &str, us: f64) -> Result<f64, CostError> {
    if us.is_finite() && us >= 0.0 {
        return Ok(us);
    }
    Err(CostError::Table {
        op: op.into(),
        why: format!("its time is {us} µs"),
        help: "the table has a hole there: import a fuller one or name another version".into(),
    })
}
