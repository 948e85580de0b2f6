//! Ops fitted to measured steps.
//!
//! The target's pass is knots by rows plus a price per distinct expert; everything else is knots alone. The price per
//! expert is that of a least-squares plane (1, rows, experts) over the fitted steps, weighted so that errors are relative.

use super::points::Timed;
use treeline_core::Phase;
use treeline_sim::cost::{Domain, FittedOp, StepPoint};

/// What goes into the file.
pub(super) struct Fitted {
    pub domain: Domain,
    pub ops: Vec<FittedOp>,
    pub points: Vec<StepPoint>,
}

/// Fits the ops to two of every three steps; the ends of the rows are among them, so that no step is predicted from outside.
pub(super) fn fit(steps: &[Timed]) -> Fitted {
    let mut steps: Vec<&Timed> = steps.iter().collect();
    steps.sort_by_key(|s| (s.rows, s.requests, s.draft_rows));
    let last = steps.len().saturating_sub(1);
    // Steps without a draft are few and have no neighbours of their kind.
    let held: Vec<bool> = steps.iter().enumerate().map(|(i, s)| i % 3 == 1 && i != last && s.draft_rows > 0).collect();
    let fitted: Vec<&Timed> = steps.iter().zip(&held).filter(|(_, h)| !**h).map(|(s, _)| *s).collect();
    let us = |f: &dyn Fn(&Timed) -> f64, of: &[&Timed]| knots(of.iter().map(|s| (s.rows, 1e3 * f(s))));
    let drafted: Vec<&Timed> = fitted.iter().copied().filter(|s| s.draft_rows > 0).collect();
    let per_expert = per_expert_us(&fitted);
    let op = |name: &str, phase, rows| FittedOp {
        name: name.to_owned(),
        phase,
        calls: 1,
        rows,
        us_per_expert: 0.0,
        us_per_token: 0.0,
        us_per_row_token: 0.0,
    };
    let pass = us(&|s| (s.of(Phase::Verify) - 1e-3 * per_expert * s.experts.unwrap_or(0.0)).max(0.0), &fitted);
    let mut ops = vec![FittedOp { us_per_expert: per_expert, ..op("target pass", Phase::Verify, pass) }];
    if !drafted.is_empty() {
        let draft = knots(drafted.iter().map(|s| (s.draft_rows, 1e3 * s.of(Phase::Draft))));
        ops.push(op("draft pass", Phase::Draft, draft));
        for (name, phase) in [("trees", Phase::Tree), ("walk", Phase::Walk), ("commit", Phase::Commit)] {
            ops.push(op(name, phase, us(&|s| s.of(phase), &drafted)));
        }
    }
    // A plain round walks and commits, too; the file's ops of those phases stand for rounds with a draft.
    let rest = |s: &Timed| match s.draft_rows {
        0 => s.round() - s.of(Phase::Verify),
        _ => s.of(Phase::Host),
    };
    ops.push(op("host", Phase::Host, us(&|s| rest(s).max(0.0), &fitted)));
    let points: Vec<StepPoint> = steps.iter().zip(held).map(|(s, held_out)| point(s, held_out)).collect();
    Fitted { domain: domain(&points, &steps), ops, points }
}

fn point(s: &Timed, held_out: bool) -> StepPoint {
    let drafted = s.draft_rows > 0;
    StepPoint {
        requests: s.requests,
        rows: s.rows,
        context_sum: s.context_sum.round() as u64,
        draft_requests: if drafted { s.requests } else { 0 },
        draft_rows: s.draft_rows,
        draft_passes: u32::from(drafted),
        experts: s.experts,
        round_us: 1e3 * s.round(),
        repeats: s.repeats,
        held_out,
    }
}

fn domain(points: &[StepPoint], steps: &[&Timed]) -> Domain {
    let span = |f: &dyn Fn(&StepPoint) -> u32| {
        let values = || points.iter().map(f);
        [values().min().unwrap_or(0), values().max().unwrap_or(0)]
    };
    let drafted: Vec<u32> = points.iter().filter(|p| p.draft_requests > 0).map(|p| p.draft_rows).collect();
    Domain {
        requests: span(&|p| p.requests),
        rows: span(&|p| p.rows),
        // Of the rounds themselves, not of their means: a run begins at the least and ends at the most.
        context: [
            steps.iter().map(|s| s.context[0].floor() as u32).min().unwrap_or(0),
            steps.iter().map(|s| s.context[1].ceil() as u32).max().unwrap_or(0),
        ],
        draft_rows: [drafted.iter().copied().min().unwrap_or(0), drafted.iter().copied().max().unwrap_or(0)],
    }
}

/// Means by rows, ascending.
fn knots(pairs: impl Iterator<Item = (u32, f64)>) -> Vec<(u32, f64)> {
    let mut sums = std::collections::BTreeMap::<u32, (f64, f64)>::new();
    for (rows, us) in pairs {
        let sum = sums.entry(rows).or_default();
        *sum = (sum.0 + us, sum.1 + 1.0);
    }
    sums.into_iter().map(|(rows, (us, n))| (rows, us / n)).collect()
}

/// µs a distinct expert: the third coefficient of verify ≈ a + b·rows + c·experts; 0 where experts are not counted, where the
/// steps do not tell rows and experts apart, and where it would be negative.
fn per_expert_us(steps: &[&Timed]) -> f64 {
    let mut normal = [[0.0f64; 4]; 3];
    for s in steps {
        let Some(experts) = s.experts else { return 0.0 };
        let us = 1e3 * s.of(Phase::Verify);
        if us <= 0.0 {
            return 0.0;
        }
        let x = [1.0 / us, f64::from(s.rows) / us, experts / us];
        for (row, xi) in normal.iter_mut().zip(x) {
            for (cell, xj) in row.iter_mut().zip([x[0], x[1], x[2], 1.0]) {
                *cell += xi * xj;
            }
        }
    }
    solve(normal).map_or(0.0, |c| if c[2].is_finite() { c[2].max(0.0) } else { 0.0 })
}

/// Gauss elimination with the largest pivot; `None` for a singular system.
fn solve(mut m: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for i in 0..3 {
        let pivot = (i..3).max_by(|&a, &b| m[a][i].abs().total_cmp(&m[b][i].abs()))?;
        m.swap(i, pivot);
        let head = m[i];
        if head[i].abs() <= 1e-12 * head.iter().fold(0.0f64, |a, b| a.max(b.abs())) {
            return None;
        }
        for (j, row) in m.iter_mut().enumerate() {
            if j != i {
                let factor = row[i] / head[i];
                row.iter_mut().zip(head).for_each(|(cell, above)| *cell -= factor * above);
            }
        }
    }
    Some([m[0][3] / m[0][0], m[1][3] / m[1][1], m[2][3] / m[2][2]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use treeline_sim::cost::{Calibration, HeldOut, Manifest};

    /// A round of 0.5 ms host work and a pass of 2 ms + 10 µs a row + 20 µs an expert.
    fn timed(requests: u32, nodes: u32) -> Timed {
        let rows = requests * (1 + nodes);
        let experts = 128.0 * (1.0 - (1.0 - 1.0 / 16.0f64).powi(rows as i32));
        let mut ms = [0.0; Phase::ALL.len()];
        ms[Phase::Verify as usize] = 2.0 + 0.01 * f64::from(rows) + 0.02 * experts;
        ms[Phase::Host as usize] = 0.5;
        if nodes > 0 {
            ms[Phase::Draft as usize] = 0.3;
            ms[Phase::Commit as usize] = 0.1;
        }
        let draft_rows = if nodes > 0 { 8 * requests } else { 0 };
        Timed {
            requests,
            rows,
            context_sum: f64::from(requests) * 100.0,
            context: [90.0, 110.0],
            draft_rows,
            experts: Some(experts),
            ms,
            repeats: 9,
        }
    }

    fn steps() -> Vec<Timed> {
        [1, 8].into_iter().flat_map(|b| [0, 1, 3, 7, 15, 31, 63].map(|n| timed(b, n))).collect()
    }

    fn file(fitted: Fitted) -> Calibration {
        let text = || "x".to_owned();
        Calibration {
            schema_version: 1,
            manifest: Manifest {
                machine: text(),
                gpu: text(),
                ranks: 1,
                of_ranks: None,
                driver: text(),
                engine: text(),
                engine_commit: text(),
                model: text(),
                drafter: None,
                execution: "graph".to_owned(),
                command: text(),
                notes: Vec::new(),
            },
            domain: fitted.domain,
            ops: fitted.ops,
            points: fitted.points,
            held_out: HeldOut { points: 0, median: 0.0, p90: 0.0, bias: 0.0 },
            digest: String::new(),
        }
    }

    #[test]
    fn a_linear_machine_is_found_again() {
        let fitted = fit(&steps());
        assert_eq!(fitted.domain.context, [90, 110], "of the rounds, not of their means");
        assert!((fitted.ops[0].us_per_expert - 20.0).abs() < 1e-6, "{}", fitted.ops[0].us_per_expert);
        let calibration = file(fitted);
        let error = calibration.measure();
        assert!(error.points >= 3 && error.p90 < 1e-9, "{error:?}");
        let text = calibration.to_json("x.json").unwrap();
        assert!(Calibration::from_json(&text, "x.json").is_ok());
    }

    /// Control: steps that the ops cannot explain show up in the held-out error.
    #[test]
    fn what_the_fit_does_not_know_is_an_error() {
        let mut steps = steps();
        for (i, s) in steps.iter_mut().enumerate() {
            s.ms[Phase::Verify as usize] *= if i % 2 == 0 { 1.2 } else { 0.9 };
        }
        assert!(file(fit(&steps)).measure().p90 > 0.03);
    }

    #[test]
    fn without_counted_experts_rows_explain_all() {
        let mut steps = steps();
        steps.iter_mut().for_each(|s| s.experts = None);
        let fitted = fit(&steps);
        assert_eq!(fitted.ops[0].us_per_expert, 0.0);
        assert!(file(fitted).to_json("x.json").is_ok());
    }
}
