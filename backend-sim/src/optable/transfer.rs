//! Tables of one machine predicted from another's by datasheet ratios, and how wrong that is: leave one machine out.
//!
//! Two rules. [`Rule::Ratio`] scales the whole time by the ratio of the rate that binds the operation on the source machine: memory bandwidth,
//! flops or link. [`Rule::Bound`] replaces only the bound, bytes/bandwidth or flops/peak or link traffic/link, and keeps the rest as it is:
//! launches, latencies and half-used bandwidth are not the datasheet's.

use super::key::Keyed;
use super::work::{Rates, Work, element};
use super::{MlaPart, OpTables};

/// How a time moves to another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The whole time by the ratio of the binding rate.
    Ratio,
    /// The bound alone; what exceeds it stays.
    Bound,
}

/// The time on `to` of a call with `work` that takes `us` on `from`.
#[must_use]
pub fn predict(us: f64, work: &Work, from: &Rates, to: &Rates, rule: Rule) -> f64 {
    let (here, there) = (work.bound_us(from), work.bound_us(to));
    match rule {
        Rule::Ratio if here > 0.0 => us * ratio(work, from, to),
        Rule::Ratio => us,
        Rule::Bound => (us - here).max(0.0) + there,
    }
}

/// Ratio of the rate that binds `work` on `from`.
fn ratio(work: &Work, from: &Rates, to: &Rates) -> f64 {
    let parts = [
        (work.bytes / from.bytes_s, from.bytes_s / to.bytes_s),
        (work.flops / from.flops_s, from.flops_s / to.flops_s),
        (work.link / from.link_s, from.link_s / to.link_s),
    ];
    parts.into_iter().fold((0.0, 1.0), |most, part| if part.0 > most.0 { part } else { most }).1
}

/// Relative errors of a set of predictions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Median of |predicted / measured − 1|.
    pub median: f64,
    /// 90th percentile of the same.
    pub p90: f64,
    /// Median of predicted / measured − 1: its sign.
    pub bias: f64,
}

impl Spread {
    fn of(errors: &[f64]) -> Option<Self> {
        let quantile = |sorted: &[f64], q: f64| sorted.get(((sorted.len() - 1) as f64 * q).round() as usize).copied();
        if errors.is_empty() {
            return None;
        }
        let mut signed = errors.to_vec();
        signed.sort_by(f64::total_cmp);
        let mut size: Vec<f64> = errors.iter().map(|e| e.abs()).collect();
        size.sort_by(f64::total_cmp);
        Some(Self { median: quantile(&size, 0.5)?, p90: quantile(&size, 0.9)?, bias: quantile(&signed, 0.5)? })
    }
}

/// How well one operation of one engine transfers.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// The operation, with the format or part that tells tables apart.
    pub op: String,
    /// Engine and version, the same on both machines.
    pub engine: String,
    /// The machine predicted from.
    pub from: String,
    /// Cells compared.
    pub cells: usize,
    /// With [`Rule::Ratio`].
    pub ratio: Spread,
    /// With [`Rule::Bound`].
    pub bound: Spread,
}

/// A measured cell that both machines have: operation, engine, work, source time, target time.
struct Pair {
    op: String,
    engine: String,
    work: Work,
    source: f64,
    target: f64,
}

/// Predicts every table of `target` from the table of `source` with the same engine, version and key, cell by cell. Kernels may differ: engines
/// choose them by machine, and that is part of the error. Cells that the source did not measure are left out.
#[must_use]
pub fn leave_out(tables: &OpTables, target: (&str, &Rates), source: (&str, &Rates)) -> Vec<Transfer> {
    let mut pairs = Vec::new();
    collect(tables, target.0, source.0, &mut pairs);
    let mut names: Vec<(String, String)> = pairs.iter().map(|p| (p.op.clone(), p.engine.clone())).collect();
    names.sort();
    names.dedup();
    names.into_iter().filter_map(|(op, engine)| group(&pairs, op, engine, target.1, source)).collect()
}

fn group(pairs: &[Pair], op: String, engine: String, to: &Rates, source: (&str, &Rates)) -> Option<Transfer> {
    let errors = |rule: Rule| -> Vec<f64> {
        let of = pairs.iter().filter(|p| p.op == op && p.engine == engine);
        of.map(|p| predict(p.source, &p.work, source.1, to, rule) / p.target - 1.0).collect()
    };
    let (whole, bound) = (errors(Rule::Ratio), errors(Rule::Bound));
    let (cells, ratio, bound) = (whole.len(), Spread::of(&whole)?, Spread::of(&bound)?);
    Some(Transfer { from: source.0.into(), cells, ratio, bound, op, engine })
}

/// The tables of both machines that differ in nothing but machine and kernel. Where the source has several kernels, each counts.
fn twins<'t, T: Keyed>(tables: &'t [T], target: &str, source: &str) -> Vec<(&'t T, &'t T)> {
    let of = |system: &str| -> Vec<&'t T> { tables.iter().filter(|t| t.origin().system == system).collect() };
    let (targets, sources) = (of(target), of(source));
    let same = |a: &T, b: &T| {
        a.origin().engine == b.origin().engine && a.origin().version == b.origin().version && a.rest() == b.rest()
    };
    targets.into_iter().flat_map(|t| sources.iter().filter(move |s| same(t, s)).map(move |&s| (t, s))).collect()
}

fn engine<T: Keyed>(table: &T) -> String {
    format!("{} {}", table.origin().engine, table.origin().version)
}

fn collect(tables: &OpTables, target: &str, source: &str, pairs: &mut Vec<Pair>) {
    let mut push = |op: String, engine: String, work: Work, source: super::Looked, target: f64| {
        if source.inside {
            pairs.push(Pair { op, engine, work, source: source.us, target });
        }
    };
    for (t, s) in twins(&tables.moe, target, source) {
        let shape = t.shape();
        for (rows, us) in t.points(super::Routing::Balanced) {
            let distinct = (rows * f64::from(shape.top_k)).min(f64::from(shape.experts));
            let work = Work::moe(&shape, f64::from(t.tp()), rows, distinct);
            push(format!("MoE layer {}", shape.quant), engine(t), work, s.balanced(rows), us);
        }
    }
    for (t, s) in twins(&tables.allreduce, target, source) {
        let (op, launch, ranks) = t.what();
        for (bytes, us) in t.points() {
            let work = Work::collective(op, f64::from(ranks), bytes);
            push(format!("{} {}", op.name(), launch.name()), engine(t), work, s.us(bytes), us);
        }
    }
    for (part, name) in [(MlaPart::Kernel, "MLA kernel"), (MlaPart::Module, "MLA module")] {
        for (t, s) in twins(tables.mla_tables(part), target, source) {
            let (_, kv, heads) = t.what();
            let heads = f64::from(heads);
            for (batch, context, us) in t.cells() {
                let attention = Work::mla(heads, element(kv), batch, context);
                let projections =
                    if part == MlaPart::Module { Work::mla_projections(heads, batch) } else { Work::default() };
                push(format!("{name} kv {kv}"), engine(t), attention + projections, s.us(batch, context), us);
            }
        }
    }
    for (t, s) in twins(&tables.mla_bmm, target, source) {
        let (dtype, _, heads) = t.what();
        for (rows, us) in t.points() {
            let work = Work::mla_bmm(f64::from(heads), element(dtype), rows);
            push(format!("MLA absorbed product {dtype}"), engine(t), work, s.us(rows), us);
        }
    }
    for (t, s) in twins(&tables.gemm, target, source) {
        for (m, n, k, us) in t.cells() {
            push("GEMM".into(), engine(t), Work::gemm(m, n, k), s.us(m, n, k), us);
        }
    }
    for (t, s) in twins(&tables.attention, target, source) {
        let (kv, heads, kv_heads, dim) = t.what();
        let (heads, kv_heads, dim) = (f64::from(heads), f64::from(kv_heads), f64::from(dim));
        for (batch, context, us) in t.cells() {
            let work = Work::attention(heads, kv_heads, dim, element(kv), batch, context);
            push(format!("decode attention kv {kv}"), engine(t), work, s.us(batch, context), us);
        }
    }
}
