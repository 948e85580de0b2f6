//! Whether a file is what it says.

use super::super::error::CostError;
use super::file::{Calibration, FittedOp, HeldOut, SCHEMA_VERSION};
use treeline_core::log::Phase;

/// A fault and what to change.
type Fault = (String, &'static str);

impl Calibration {
    /// Checks everything.
    pub(super) fn check(&self, file: &str) -> Result<(), CostError> {
        self.check_parts(file)?;
        let hash = self.hash();
        let changed = (hash != self.digest).then(|| {
            (format!("`digest` is {}, the file has {hash}", self.digest), "the file was changed: measure anew")
        });
        refuse(file, self.error_fault().or(changed))
    }

    /// Checks all but held-out error and digest.
    pub(super) fn check_parts(&self, file: &str) -> Result<(), CostError> {
        let version = (self.schema_version != SCHEMA_VERSION).then(|| {
            let why = format!("`schema_version` is {}, this build reads {SCHEMA_VERSION}", self.schema_version);
            (why, "write the file anew with this build")
        });
        let parts = version.or_else(|| self.manifest_fault()).or_else(|| self.domain_fault());
        refuse(file, parts.or_else(|| self.ops_fault()).or_else(|| self.points_fault()))
    }

    fn manifest_fault(&self) -> Option<Fault> {
        let m = &self.manifest;
        let texts = [
            ("machine", &m.machine),
            ("gpu", &m.gpu),
            ("driver", &m.driver),
            ("engine", &m.engine),
            ("engine_commit", &m.engine_commit),
            ("model", &m.model),
            ("command", &m.command),
        ];
        let help = "say where it was measured: a calibration holds for one machine and one build";
        if let Some((key, _)) = texts.into_iter().find(|(_, text)| text.trim().is_empty()) {
            return Some((format!("`manifest.{key}` is empty"), help));
        }
        if m.ranks == 0 {
            return Some(("`manifest.ranks` is 0".into(), help));
        }
        if let Some(of) = m.of_ranks.filter(|of| *of <= m.ranks) {
            let why = format!("`manifest.of_ranks` is {of} where {} ran", m.ranks);
            return Some((
                why,
                "it says how many the model was split over where fewer ran: leave it out where all did",
            ));
        }
        (!["graph", "eager"].contains(&m.execution.as_str()))
            .then(|| (format!("`manifest.execution` is \"{}\"", m.execution), "it is \"graph\" or \"eager\""))
    }

    fn domain_fault(&self) -> Option<Fault> {
        let d = &self.domain;
        let all = [
            ("requests", d.requests, 1),
            ("rows", d.rows, 1),
            ("context", d.context, 0),
            ("draft_rows", d.draft_rows, 0),
        ];
        all.into_iter().find(|(_, [low, high], least)| low > high || low < least).map(|(key, [low, high], least)| {
            (format!("`domain.{key}` is [{low}, {high}], least {least}"), "give least and most, both inside")
        })
    }

    fn ops_fault(&self) -> Option<Fault> {
        if !self.ops.iter().any(|o| o.phase == Phase::Verify) {
            return Some(("no op of phase `verify`".into(), "a step without a target pass prices nothing"));
        }
        for (i, op) in self.ops.iter().enumerate() {
            if self.ops[..i].iter().any(|o| o.name == op.name) {
                return Some((format!("op `{}` stands twice", op.name), "give each op its own name"));
            }
            if let Some((why, help)) = op_fault(op) {
                return Some((format!("op `{}`: {why}", op.name), help));
            }
        }
        for phase in [Phase::Verify, Phase::Draft] {
            let kernels = self.ops.iter().filter(|o| o.phase == phase && o.reads_cache()).count();
            if kernels > 2 {
                let why = format!("{kernels} ops of one pass read the cache");
                return Some((why, "fit at most two: a windowed and a full attention kernel"));
            }
        }
        let draft = self.ops.iter().any(|o| o.phase == Phase::Draft);
        (draft != (self.domain.draft_rows[1] > 0)).then(|| {
            ("draft ops and `domain.draft_rows` contradict each other".into(), "give both, or neither and [0, 0]")
        })
    }

    fn points_fault(&self) -> Option<Fault> {
        let counted = self.ops.iter().any(|o| o.us_per_expert > 0.0);
        for (i, p) in self.points.iter().enumerate() {
            let positive = p.round_us.is_finite() && p.round_us > 0.0 && p.repeats > 0 && p.requests > 0 && p.rows > 0;
            if !positive {
                return Some((format!("point {i} has no positive time, rows, requests or repeats"), "leave it out"));
            }
            if p.experts.is_some_and(|e| !e.is_finite() || e < 0.0) || (counted && p.experts.is_none()) {
                let help = "ops cost time by distinct experts, so every point must count them";
                return Some((format!("point {i}: `experts` is {:?}", p.experts), help));
            }
            if !self.covers_point(p) {
                return Some((format!("point {i} lies outside of `domain`"), "the domain is what was measured"));
            }
        }
        let held = self.points.iter().filter(|p| p.held_out).count();
        (held == 0 || held == self.points.len()).then(|| {
            let why = format!("{held} of {} points are held out", self.points.len());
            (why, "fit to some, hold out others: an error on fitted points says nothing")
        })
    }

    fn error_fault(&self) -> Option<Fault> {
        let (stated, real) = (self.held_out, self.measure());
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * (1.0 + b.abs());
        let same = stated.points == real.points
            && near(stated.median, real.median)
            && near(stated.p90, real.p90)
            && near(stated.bias, real.bias);
        (!same).then(|| {
            let why = format!("`held_out` states {stated:?}, the file's own points give {real:?}");
            (why, "write the error that the held-out points give")
        })
    }

    fn covers_point(&self, p: &super::StepPoint) -> bool {
        let within = |[low, high]: [u32; 2], x: u64| (u64::from(low)..=u64::from(high)).contains(&x);
        let d = &self.domain;
        within(d.requests, u64::from(p.requests))
            && within(d.rows, u64::from(p.rows))
            && within(d.context, p.context_sum / u64::from(p.requests.max(1)))
            && (p.draft_requests == 0 || within(d.draft_rows, u64::from(p.draft_rows)))
    }

    /// Error of the ops on the held-out points.
    #[must_use]
    pub fn measure(&self) -> HeldOut {
        let mut errors: Vec<f64> = Vec::new();
        let mut bias = 0.0;
        for p in self.points.iter().filter(|p| p.held_out) {
            let error = self.round_us(p) / p.round_us - 1.0;
            bias += error;
            errors.push(error.abs());
        }
        errors.sort_by(f64::total_cmp);
        let n = errors.len();
        // Nearest rank: the least error that covers the share.
        let at = |share: f64| if n == 0 { 0.0 } else { errors[((share * n as f64).ceil() as usize).clamp(1, n) - 1] };
        let bias = if n == 0 { 0.0 } else { bias / n as f64 };
        HeldOut { points: n as u32, median: at(0.5), p90: at(0.9), bias }
    }
}

fn refuse(file: &str, fault: Option<Fault>) -> Result<(), CostError> {
    match fault {
        None => Ok(()),
        Some((why, help)) => Err(CostError::Calibration { file: file.into(), why, help: help.into() }),
    }
}

fn op_fault(op: &FittedOp) -> Option<Fault> {
    if op.name.trim().is_empty() {
        return Some(("has no name".into(), "name it"));
    }
    if op.phase == Phase::Prefill {
        return Some(("is of phase `prefill`".into(), "prefill is not calibrated by this file"));
    }
    if op.rows.is_empty() {
        return Some(("has no knots".into(), "give at least one (rows, µs)"));
    }
    if let Some(w) = op.rows.windows(2).find(|w| w[0].0 >= w[1].0) {
        return Some((format!("knots do not ascend at {} rows", w[1].0), "sort them, one a row count"));
    }
    let rates = [op.us_per_expert, op.us_per_token, op.us_per_row_token];
    if op.rows.iter().map(|k| k.1).chain(rates).any(|x| !x.is_finite() || x < 0.0) {
        return Some(("has a time that is no number of at least 0".into(), "times are µs"));
    }
    let pass = matches!(op.phase, Phase::Verify | Phase::Draft);
    (!pass && rates.iter().any(|x| *x > 0.0)).then(|| {
        ("costs time by experts or tokens outside of a pass".into(), "only ops of phases verify and draft may")
    })
}
