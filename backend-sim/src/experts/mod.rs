//! Distinct experts: how many of a layer's routed experts the rows of a step touch, which is what a step on a mixture of
//! experts pays for.
//!
//! Two questions are kept apart. *How many independent rows are the rows worth?* Rows of different requests are nearly
//! independent; rows of one tree are not: [`Experts::effective_rows`]. *How many experts do so many independent rows touch?*
//! That depends on how evenly the router chooses: [`Experts::distinct`].
//!
//! ```
//! use treeline_sim::experts::Experts;
//!
//! let u = Experts::Uniform;
//! assert_eq!(u.distinct(384, 8, u.effective_rows(1, 17)).round(), 116.0);
//! ```

mod correlated;
pub mod fit;
mod load;
mod measured;
mod prepared;
mod skewed;
pub mod uniform;

use treeline_core::Tree;

pub use correlated::{Composition, Novelty};
pub use load::{experts, shipped};
pub use measured::{Curve, Point};
pub use prepared::Prepared;
pub use skewed::{Distinct, Popularity};

/// A number of an expert model that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}`: {problem}")]
pub struct ExpertsError {
    /// What is wrong.
    pub key: String,
    /// How, and what to change.
    pub problem: String,
}

impl ExpertsError {
    pub(crate) fn new(key: &str, problem: impl Into<String>) -> Self {
        Self { key: key.to_owned(), problem: problem.into() }
    }
}

/// A model of distinct experts.
#[derive(Debug, Clone, PartialEq)]
pub enum Experts {
    /// All rows independent, all experts alike: the most experts that rows can touch on average.
    Uniform,
    /// All rows independent, experts of different popularity.
    Skewed {
        /// Popularity.
        popularity: Popularity,
    },
    /// T rows of one request are worth T^exponent.
    Power {
        /// Popularity.
        popularity: Popularity,
        /// 0 to 1.
        exponent: f64,
    },
    /// T rows of one request are worth 1 + (T − 1)(1 − ρ).
    Shared {
        /// Popularity.
        popularity: Popularity,
        /// 0 to 1.
        rho: f64,
    },
    /// Every node adds its novelty.
    Correlated {
        /// Popularity.
        popularity: Popularity,
        /// What each node adds.
        novelty: Novelty,
    },
    /// A measured curve.
    Measured {
        /// Popularity, the same with which the curve was made.
        popularity: Popularity,
        /// Effective rows of one request.
        curve: Curve,
    },
}

impl Experts {
    /// Word for results: `uniform`, `skewed`, `power`, `shared`, `correlated`, `measured`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Skewed { .. } => "skewed",
            Self::Power { .. } => "power",
            Self::Shared { .. } => "shared",
            Self::Correlated { .. } => "correlated",
            Self::Measured { .. } => "measured",
        }
    }

    /// The model with its parameters, for a reader.
    #[must_use]
    pub fn words(&self) -> String {
        let own = match self {
            Self::Uniform => "all rows independent".to_owned(),
            Self::Skewed { .. } => "all rows independent, experts of different popularity".to_owned(),
            Self::Power { exponent, .. } => format!("T rows of a request are worth T^{exponent}"),
            Self::Shared { rho, .. } => format!("T rows of a request are worth 1 + (T − 1)(1 − {rho})"),
            Self::Correlated { novelty: n, .. } => format!(
                "a chain's m-th node adds {}·m^−{} of an independent row, the m-th sibling {}·m^−{}, a repeat {}",
                n.chain, n.chain_decay, n.sibling, n.sibling_decay, n.repeat
            ),
            Self::Measured { .. } => "effective rows as measured".to_owned(),
        };
        let even = match self.popularity() {
            Popularity::Even => "experts alike".to_owned(),
            Popularity::Zipf { exponent } => format!("popularity falls as rank^−{exponent}"),
            Popularity::List(weights) => format!("popularity of {} counted experts", weights.len()),
        };
        format!("{}: {own}; {even}", self.kind())
    }

    /// How evenly the router chooses.
    #[must_use]
    pub fn popularity(&self) -> &Popularity {
        match self {
            Self::Uniform => &Popularity::Even,
            Self::Skewed { popularity }
            | Self::Power { popularity, .. }
            | Self::Shared { popularity, .. }
            | Self::Correlated { popularity, .. }
            | Self::Measured { popularity, .. } => popularity,
        }
    }

    /// Checks the parameters against a model.
    ///
    /// # Errors
    /// The first parameter that is out of range.
    pub fn check(&self, total: u32, top_k: u32) -> Result<(), ExpertsError> {
        let unit = |key: &str, v: f64| {
            let problem = format!("is {v}; it must be from 0 to 1");
            if (0.0..=1.0).contains(&v) { Ok(()) } else { Err(ExpertsError::new(key, problem)) }
        };
        let falling = |key: &str, v: f64| {
            let problem = format!("is {v}; it must be zero or more");
            if v.is_finite() && v >= 0.0 { Ok(()) } else { Err(ExpertsError::new(key, problem)) }
        };
        self.popularity().check(total, top_k)?;
        match self {
            Self::Uniform | Self::Skewed { .. } | Self::Measured { .. } => Ok(()),
            Self::Power { exponent, .. } => unit("exponent", *exponent),
            Self::Shared { rho, .. } => unit("rho", *rho),
            Self::Correlated { novelty: n, .. } => {
                unit("novelty.chain", n.chain)?;
                unit("novelty.sibling", n.sibling)?;
                unit("novelty.repeat", n.repeat)?;
                falling("novelty.chain_decay", n.chain_decay)?;
                falling("novelty.sibling_decay", n.sibling_decay)
            }
        }
    }

    /// Distinct experts of a layer that so many independent rows touch, of `total` with `top_k` a row.
    ///
    /// Prepares the popularity anew at each call; [`Prepared`] keeps it.
    #[must_use]
    pub fn distinct(&self, total: u32, top_k: u32, effective_rows: f64) -> f64 {
        Distinct::new(self.popularity(), total, top_k).at(effective_rows)
    }

    /// Independent rows that the tree of one request is worth: `rows` rows, root included, made of `tree`, or typically made
    /// where that is not known.
    #[must_use]
    pub fn effective_of(&self, rows: f64, tree: Option<&Composition>) -> f64 {
        let rows = rows.max(1.0);
        match self {
            Self::Uniform | Self::Skewed { .. } => rows,
            Self::Power { exponent, .. } => rows.powf(*exponent),
            Self::Shared { rho, .. } => 1.0 + (rows - 1.0) * (1.0 - rho),
            Self::Measured { curve, .. } => curve.effective(rows),
            Self::Correlated { novelty, .. } => match tree {
                Some(tree) => novelty.effective(tree),
                None => novelty.effective(&Composition::typical(rows - 1.0, novelty.spine)),
            },
        }
    }

    /// Independent rows that a step of `requests` requests with `rows` rows in all is worth, each with an equal share in a
    /// typical tree. Trees of unequal size are worth slightly less.
    #[must_use]
    pub fn effective_rows(&self, requests: u32, rows: u32) -> f64 {
        if requests == 0 || rows == 0 {
            return 0.0;
        }
        let each = f64::from(rows) / f64::from(requests);
        if each <= 1.0 {
            return f64::from(rows);
        }
        f64::from(requests) * self.effective_of(each, None)
    }

    /// Independent rows that these trees of one step are worth, node by node.
    #[must_use]
    pub fn effective_rows_of<'t>(&self, trees: impl Iterator<Item = &'t Tree>) -> f64 {
        trees.map(|t| self.effective_of(f64::from(t.rows()), Some(&Composition::of(t)))).sum()
    }
}
