//! The routed MoE layer: one GPU's share of the experts, as engines run it, and its fit t(T, U) = t0 + c·U + h(T).

use super::csv::Sheet;
use super::domain::Line;
use super::key::{Keyed, Origin, Wanted, Wish, select};
use super::{Looked, OpTables, TableError};

/// How the measured rows choose their experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Routing {
    /// Every expert gets the same number of rows: T rows touch min(E, k·T) experts.
    Balanced,
    /// Popularity by a power law of exponent 1.01.
    PowerLaw101,
    /// Popularity by a power law of exponent 1.2.
    PowerLaw120,
}

impl Routing {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Balanced, Self::PowerLaw101, Self::PowerLaw120];

    /// As the tables write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Balanced => "balanced",
            Self::PowerLaw101 => "power_law_1.01",
            Self::PowerLaw120 => "power_law_1.2",
        }
    }
}

/// The shape of a MoE layer and how its weights are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoeShape<'k> {
    /// `int4_wo` (group 32, weights only) or `bfloat16`.
    pub quant: &'k str,
    /// Routed experts of the layer.
    pub experts: u32,
    /// Experts per row.
    pub top_k: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Width of one expert.
    pub intermediate: u32,
}

impl MoeShape<'static> {
    /// Kimi K2.x: 384 experts, 8 a row, 7168 × 2048, INT4.
    pub const KIMI_INT4: Self = Self { quant: "int4_wo", experts: 384, top_k: 8, hidden: 7168, intermediate: 2048 };
    /// Qwen3-30B-A3B: 128 experts, 8 a row, 2048 × 768, bf16.
    pub const QWEN3_30B_BF16: Self =
        Self { quant: "bfloat16", experts: 128, top_k: 8, hidden: 2048, intermediate: 768 };
}

/// Which MoE table.
#[derive(Clone, Copy, Debug)]
pub struct MoeKey<'k> {
    /// Machine, engine, version, kernel.
    pub from: Wanted<'k>,
    /// The layer.
    pub shape: MoeShape<'k>,
    /// Tensor-parallel ranks that share each expert.
    pub tp: u32,
}

/// One layer on one machine under one engine at one number of ranks.
#[derive(Clone, Debug)]
pub struct MoeTable {
    origin: Origin,
    quant: String,
    experts: u32,
    top_k: u32,
    hidden: u32,
    intermediate: u32,
    tp: u32,
    lines: Vec<(Routing, Line)>,
    fit: MoeFit,
}

/// t(T, U) = t0 + c·U + h(T), with T rows that touch U distinct experts.
///
/// t0 and c by least squares of relative errors over the balanced rows T ≤ E/k, where U = k·T. h(T) = t_bal(T) − t_bal(E/k) beyond:
/// balanced rows touch every expert there, so what still grows is not weight traffic. Below E/k, h = 0.
#[derive(Clone, Debug)]
pub struct MoeFit {
    /// Time of a layer that touches no expert, in µs.
    pub t0: f64,
    /// Time per distinct expert, in µs.
    pub c: f64,
    /// Rows at which balanced routing touches every expert: E/k (48 for Kimi).
    pub saturation: f64,
    /// Measured balanced time at saturation, in µs: `t_bal48` of the Kimi layer.
    pub saturated_us: f64,
    /// Largest relative error over the fitted rows.
    pub worst: f64,
    experts: f64,
    balanced: Line,
}

impl MoeFit {
    fn of(line: &Line, experts: u32, top_k: u32) -> Option<Self> {
        let saturation = f64::from(experts) / f64::from(top_k);
        let points: Vec<(f64, f64)> = line
            .points()
            .filter(|p| p.0 <= saturation)
            .map(|(t, us)| ((t * f64::from(top_k)).min(f64::from(experts)), us))
            .collect();
        if points.len() < 3 {
            return None;
        }
        let (mut w, mut wu, mut wt, mut wuu, mut wut) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for &(u, us) in &points {
            let weight = 1.0 / (us * us);
            w += weight;
            wu += weight * u;
            wt += weight * us;
            wuu += weight * u * u;
            wut += weight * u * us;
        }
        let c = (w * wut - wu * wt) / (w * wuu - wu * wu);
        let t0 = (wt - c * wu) / w;
        let worst = points.iter().map(|&(u, us)| ((t0 + c * u) / us - 1.0).abs()).fold(0.0, f64::max);
        let saturated_us = line.at(saturation).us;
        Some(Self { t0, c, saturation, saturated_us, worst, experts: f64::from(experts), balanced: line.clone() })
    }

    /// h(T) in µs: 0 up to saturation, then what the balanced rows add, never negative.
    #[must_use]
    pub fn h(&self, rows: f64) -> f64 {
        if rows <= self.saturation { 0.0 } else { (self.balanced.at(rows).us - self.saturated_us).max(0.0) }
    }

    /// The layer's time for `rows` rows that touch `distinct` experts. Inside: rows within the measured ones, 0 < U ≤ E.
    #[must_use]
    pub fn us(&self, rows: f64, distinct: f64) -> Looked {
        let inside =
            rows >= self.balanced.first() && rows <= self.balanced.last() && distinct > 0.0 && distinct <= self.experts;
        Looked { us: self.t0 + self.c * distinct + self.h(rows), inside }
    }

    /// The knots of h: (rows, µs), from saturation up.
    #[must_use]
    pub fn knots(&self) -> Vec<(f64, f64)> {
        self.balanced.points().filter(|p| p.0 >= self.saturation).map(|(t, _)| (t, self.h(t))).collect()
    }
}

impl MoeTable {
    /// Where it comes from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The layer.
    #[must_use]
    pub fn shape(&self) -> MoeShape<'_> {
        MoeShape {
            quant: &self.quant,
            experts: self.experts,
            top_k: self.top_k,
            hidden: self.hidden,
            intermediate: self.intermediate,
        }
    }

    /// Tensor-parallel ranks.
    #[must_use]
    pub fn tp(&self) -> u32 {
        self.tp
    }

    /// The measured time of `rows` rows under balanced routing.
    #[must_use]
    pub fn balanced(&self, rows: f64) -> Looked {
        self.fit.balanced.at(rows)
    }

    /// The measured time of `rows` rows under `routing`; `None` where it was not measured.
    #[must_use]
    pub fn routed(&self, routing: Routing, rows: f64) -> Option<Looked> {
        self.lines.iter().find(|(r, _)| *r == routing).map(|(_, line)| line.at(rows))
    }

    /// Least and most rows measured under balanced routing.
    #[must_use]
    pub fn rows(&self) -> (f64, f64) {
        (self.fit.balanced.first(), self.fit.balanced.last())
    }

    /// The measured points (rows, µs) under `routing`.
    #[must_use]
    pub fn points(&self, routing: Routing) -> Vec<(f64, f64)> {
        self.lines.iter().find(|(r, _)| *r == routing).map(|(_, line)| line.points().collect()).unwrap_or_default()
    }

    /// t0 + c·U + h(T).
    #[must_use]
    pub fn fit(&self) -> &MoeFit {
        &self.fit
    }
}

impl Keyed for MoeTable {
    const OP: &'static str = "MoE layer";

    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn rest(&self) -> Vec<String> {
        let numbers = [self.experts, self.top_k, self.hidden, self.intermediate, self.tp];
        std::iter::once(self.quant.clone()).chain(numbers.iter().map(u32::to_string)).collect()
    }
}

impl OpTables {
    /// The MoE layer for `key`.
    ///
    /// # Errors
    /// [`TableError::Missing`] with the nearest keys, [`TableError::Ambiguous`].
    pub fn moe(&self, key: &MoeKey<'_>) -> Result<&MoeTable, TableError> {
        let s = &key.shape;
        let mut wishes: Vec<Wish> = key.from.wishes();
        wishes.push(("quant", Some(s.quant.into())));
        let numbers = [
            ("experts", s.experts),
            ("top_k", s.top_k),
            ("hidden", s.hidden),
            ("intermediate", s.intermediate),
            ("tp", key.tp),
        ];
        wishes.extend(numbers.iter().map(|&(name, n)| (name, Some(n.to_string()))));
        select(&self.moe, &wishes)
    }

    /// Every MoE table.
    #[must_use]
    pub fn moe_tables(&self) -> &[MoeTable] {
        &self.moe
    }
}

/// Key columns of `moe.csv`.
pub(crate) const KEYS: &[&str] =
    &["system", "engine", "version", "kernel", "quant", "experts", "top_k", "hidden", "intermediate", "tp", "routing"];

pub(crate) fn read(sheet: &Sheet<'_>) -> Result<Vec<MoeTable>, TableError> {
    let mut tables = Vec::new();
    let mut start = 0;
    while start < sheet.rows.len() {
        let first = &sheet.rows[start];
        let end = start + sheet.rows[start..].iter().take_while(|r| r.key[..10] == first.key[..10]).count();
        let mut lines = Vec::new();
        for row in &sheet.rows[start..end] {
            let routing = Routing::ALL.into_iter().find(|r| r.name() == row.key[10]);
            let routing = routing.ok_or_else(|| sheet.fault(row, format!("routing `{}` is not known", row.key[10])))?;
            let line = Line::new(&sheet.points(row)).ok_or_else(|| sheet.fault(row, "a row without a time"))?;
            lines.push((routing, line));
        }
        let n = |column: usize| sheet.number(first, column, KEYS[column]);
        let (experts, top_k) = (n(5)?, n(6)?);
        let fit =
            lines.iter().find(|(r, _)| *r == Routing::Balanced).and_then(|(_, line)| MoeFit::of(line, experts, top_k));
        let fit = fit
            .ok_or_else(|| sheet.fault(first, "no balanced row with three points up to experts / top_k rows to fit"))?;
        tables.push(MoeTable {
            origin: Origin::of(&first.key),
            quant: first.key[4].into(),
            experts,
            top_k,
            hidden: n(7)?,
            intermediate: n(8)?,
            tp: n(9)?,
            lines,
            fit,
        });
        start = end;
    }
    Ok(tables)
}
