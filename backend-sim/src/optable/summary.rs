//! What a set of tables holds, line by line, for people.

use super::key::Keyed;
use super::{MlaPart, OpTables, Routing};

/// One table in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The operation.
    pub op: &'static str,
    /// Machine, engine, version and kernel.
    pub from: String,
    /// The rest of its key.
    pub what: String,
    /// The supported domain.
    pub domain: String,
    /// Measured points.
    pub points: usize,
}

impl OpTables {
    /// Machines that dense products were measured on, sorted: the keys that `system` of a hardware profile may have.
    #[must_use]
    pub fn systems(&self) -> Vec<&str> {
        let all: std::collections::BTreeSet<&str> = self.gemm.iter().map(|t| t.origin().system.as_str()).collect();
        all.into_iter().collect()
    }

    /// Every table, in the order of the files.
    #[must_use]
    pub fn summaries(&self) -> Vec<Summary> {
        let mut all = Vec::new();
        for t in &self.moe {
            let (low, high) = t.rows();
            let s = t.shape();
            let fit = t.fit();
            let what = format!("E{} k{} {}×{} {} tp {}", s.experts, s.top_k, s.hidden, s.intermediate, s.quant, t.tp());
            let domain = format!(
                "{low}–{high} rows; t0 {:.1} µs, c {:.3} µs/expert, fit within {:.0} %",
                fit.t0,
                fit.c,
                100.0 * fit.worst
            );
            let points = Routing::ALL.iter().map(|&r| t.points(r).len()).sum();
            all.push(summary(t, what, domain, points));
        }
        for t in &self.allreduce {
            let (low, high) = t.bytes();
            let (op, launch, ranks) = t.what();
            let what = format!("{} {} {ranks} ranks", op.name(), launch.name());
            let switches: Vec<String> = t.switches().iter().map(f64::to_string).collect();
            let switches = if switches.is_empty() { "none".into() } else { switches.join(", ") };
            all.push(summary(t, what, format!("{low}–{high} bytes, switches: {switches}"), t.points().len()));
        }
        for t in self.mla.iter().chain(&self.mla_module) {
            let (part, kv, heads) = t.what();
            let part = if part == MlaPart::Kernel { "kernel" } else { "module" };
            all.push(summary(t, format!("{part} {heads} heads kv {kv}"), plane(t.axes()), t.cells().len()));
        }
        for t in &self.mla_bmm {
            let (dtype, side, heads) = t.what();
            let points = t.points();
            let ends = (points.first().map_or(0.0, |p| p.0), points.last().map_or(0.0, |p| p.0));
            all.push(summary(
                t,
                format!("{} {heads} heads {dtype}", side.name()),
                format!("{}–{} rows", ends.0, ends.1),
                points.len(),
            ));
        }
        for t in &self.gemm {
            let (n, k) = t.axes();
            let cells = t.cells();
            let m = cells.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), c| (low.min(c.0), high.max(c.0)));
            let domain = format!("m {}–{}, n {}, k {}", m.0, m.1, span(n), span(k));
            all.push(summary(t, t.dtype().into(), domain, cells.len()));
        }
        for t in &self.attention {
            let (kv, heads, kv_heads, dim) = t.what();
            all.push(summary(
                t,
                format!("{heads}/{kv_heads} heads of {dim} kv {kv}"),
                plane(t.axes()),
                t.cells().len(),
            ));
        }
        all
    }
}

fn summary<T: Keyed>(table: &T, what: String, domain: String, points: usize) -> Summary {
    Summary { op: T::OP, from: table.origin().to_string(), what, domain, points }
}

fn plane(axes: (&[f64], &[f64])) -> String {
    format!("batch {}, context {}", span(axes.0), span(axes.1))
}

fn span(axis: &[f64]) -> String {
    match axis {
        [] => "none".into(),
        [only] => only.to_string(),
        [first, .., last] => format!("{first}–{last}"),
    }
}
