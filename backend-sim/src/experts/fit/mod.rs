//! Fits of every form of expert overlap to the same measured points, side by side with their errors.
//!
//! Which form holds decides how a tree's cost is carried to sizes that were not measured, so the simple ones are reported
//! beside the one that is used.

mod points;
mod simplex;

pub use points::PointSet;

use super::{Composition, Curve, Distinct, Experts, ExpertsError, Novelty, Point, Popularity};
use simplex::minimise;

/// One form, fitted.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// Form and popularity in words: `power, zipf`.
    pub form: String,
    /// Parameters that were fitted, by name.
    pub parameters: Vec<(&'static str, f64)>,
    /// The fitted model.
    pub experts: Experts,
    /// Relative error of each point of the set, in its order: predicted / measured − 1.
    pub errors: Vec<f64>,
}

impl Fitted {
    /// Root of the mean squared relative error.
    #[must_use]
    pub fn rms(&self) -> f64 {
        (self.errors.iter().map(|e| e * e).sum::<f64>() / self.errors.len().max(1) as f64).sqrt()
    }

    /// Largest relative error, as an absolute value.
    #[must_use]
    pub fn largest(&self) -> f64 {
        self.errors.iter().fold(0.0, |a, e| a.max(e.abs()))
    }
}

/// Fits every form to a set of points, under even popularity, and under a Zipf popularity where the set has steps of
/// independent rows (several requests of one row) to fit that to. What the points do not show (siblings where all are
/// chains) keeps `prior`'s ratio to the chain.
///
/// # Errors
/// Points that cannot be, or none with more than one row a request.
pub fn all(set: &PointSet, prior: &Novelty) -> Result<Vec<Fitted>, ExpertsError> {
    // Also checks the points.
    let even = curve(set, &Popularity::Even)?;
    let mut fitted = forms(set, &Popularity::Even, prior, even);
    if let Some(popularity) = zipf(set) {
        let measured = curve(set, &popularity)?;
        fitted.extend(forms(set, &popularity, prior, measured));
    }
    Ok(fitted)
}

fn curve(set: &PointSet, popularity: &Popularity) -> Result<Experts, ExpertsError> {
    let curve = Curve::new(&set.points, &Distinct::new(popularity, set.total, set.top_k))?;
    Ok(Experts::Measured { popularity: popularity.clone(), curve })
}

/// Zipf popularity from steps of several requests with one row each; None without such steps.
#[must_use]
pub fn zipf(set: &PointSet) -> Option<Popularity> {
    let independent: Vec<&Point> = set.points.iter().filter(|p| p.rows == 1.0 && p.requests > 1).collect();
    if independent.is_empty() {
        return None;
    }
    let loss = |x: &[f64]| {
        let distinct = Distinct::new(&Popularity::Zipf { exponent: x[0].max(0.0) }, set.total, set.top_k);
        independent.iter().map(|p| (distinct.at(f64::from(p.requests)) / p.distinct).ln().powi(2)).sum()
    };
    let best = minimise(&[0.5], &[0.5], loss);
    Some(Popularity::Zipf { exponent: best[0].max(0.0) })
}

fn forms(set: &PointSet, popularity: &Popularity, prior: &Novelty, measured: Experts) -> Vec<Fitted> {
    let word = match popularity {
        Popularity::Even => "even",
        Popularity::Zipf { .. } => "zipf",
        Popularity::List(_) => "list",
    };
    let named = |form: &str| format!("{form}, {word}");
    let shape = match popularity {
        Popularity::Zipf { exponent } => vec![("zipf", *exponent)],
        Popularity::Even | Popularity::List(_) => Vec::new(),
    };
    let with = |more: Vec<(&'static str, f64)>| shape.iter().copied().chain(more).collect::<Vec<_>>();
    let p = || popularity.clone();

    let power = one(set, popularity, 0.8, |x| Experts::Power { popularity: p(), exponent: x });
    let shared = one(set, popularity, 0.5, |x| Experts::Shared { popularity: p(), rho: x });
    let (novelty, free) = novelty(set, popularity, prior);
    [
        (named("independent"), with(vec![]), Experts::Skewed { popularity: p() }),
        (named("power"), with(vec![("exponent", power)]), Experts::Power { popularity: p(), exponent: power }),
        (named("single ρ"), with(vec![("rho", shared)]), Experts::Shared { popularity: p(), rho: shared }),
        (named("novelty"), with(free), Experts::Correlated { popularity: p(), novelty }),
        (named("measured"), with(vec![]), measured),
    ]
    .into_iter()
    .map(|(form, parameters, experts)| {
        let errors = errors(set, &experts);
        Fitted { form, parameters, experts, errors }
    })
    .collect()
}

/// Relative error of each point under a model.
#[must_use]
pub fn errors(set: &PointSet, experts: &Experts) -> Vec<f64> {
    let distinct = Distinct::new(experts.popularity(), set.total, set.top_k);
    set.points.iter().map(|p| predicted(p, experts, &distinct) / p.distinct - 1.0).collect()
}

fn predicted(point: &Point, experts: &Experts, distinct: &Distinct) -> f64 {
    let each = experts.effective_of(point.rows, point.composition.as_ref());
    distinct.at(f64::from(point.requests) * each)
}

fn loss(set: &PointSet, experts: &Experts, distinct: &Distinct) -> f64 {
    set.points.iter().map(|p| (predicted(p, experts, distinct) / p.distinct).ln().powi(2)).sum()
}

/// Fits one parameter from 0 to 1.
fn one(set: &PointSet, popularity: &Popularity, start: f64, make: impl Fn(f64) -> Experts) -> f64 {
    let distinct = Distinct::new(popularity, set.total, set.top_k);
    let best = minimise(&[start], &[0.1], |x| loss(set, &make(x[0].clamp(0.0, 1.0)), &distinct));
    best[0].clamp(0.0, 1.0)
}

/// Fits those parameters of the novelty that the points show; returns them by name.
fn novelty(set: &PointSet, popularity: &Popularity, prior: &Novelty) -> (Novelty, Vec<(&'static str, f64)>) {
    let made: Vec<Composition> = set
        .points
        .iter()
        .map(|p| p.composition.unwrap_or_else(|| Composition::typical(p.rows - 1.0, prior.spine)))
        .collect();
    let spread = |of: fn(&Composition) -> f64| {
        let (low, high) =
            made.iter().map(of).filter(|n| *n > 0.0).fold((f64::MAX, 0.0_f64), |(l, h), n| (l.min(n), h.max(n)));
        (high > 0.0, high > low * 1.01)
    };
    let (siblings, several) = spread(|c| c.siblings);
    let (repeats, _) = spread(|c| c.repeats);
    let chains = spread(|c| c.chain).1;
    let read = |x: &[f64]| {
        let mut free = x.iter().copied();
        let mut next = |on: bool, otherwise: f64, most: f64| {
            if on { free.next().unwrap_or(otherwise).clamp(0.0, most) } else { otherwise }
        };
        let chain = next(true, prior.chain, 1.0);
        let ratio = if prior.chain > 0.0 { chain / prior.chain } else { 1.0 };
        Novelty {
            chain,
            chain_decay: next(chains, prior.chain_decay, 5.0),
            sibling: next(siblings, (prior.sibling * ratio).min(1.0), 1.0),
            sibling_decay: next(several, prior.sibling_decay, 5.0),
            repeat: next(repeats, (prior.repeat * ratio).min(1.0), 1.0),
            spine: prior.spine,
        }
    };
    let names = [
        ("chain", true, prior.chain),
        ("chain_decay", chains, prior.chain_decay),
        ("sibling", siblings, prior.sibling),
        ("sibling_decay", several, prior.sibling_decay),
        ("repeat", repeats, prior.repeat),
    ];
    let start: Vec<f64> = names.iter().filter(|n| n.1).map(|n| n.2).collect();
    let step = vec![0.1; start.len()];
    let distinct = Distinct::new(popularity, set.total, set.top_k);
    let best = minimise(&start, &step, |x| {
        loss(set, &Experts::Correlated { popularity: popularity.clone(), novelty: read(x) }, &distinct)
    });
    let found = read(&best);
    let values = [found.chain, found.chain_decay, found.sibling, found.sibling_decay, found.repeat];
    (found, names.iter().zip(values).filter(|(n, _)| n.1).map(|(n, v)| (n.0, v)).collect())
}
