//! The groups of a priced run: one acceptance, context and concurrency each, with all candidates.

use crate::priced::Prepared;
use crate::results::{Choice, FailedCell, RefusedCell};
use crate::run::plan::sha256;
use serde_json::json;
use treeline_sim::cost::StepQuery;

/// One acceptance, context and concurrency.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Group {
    /// Names the group's file.
    pub key: String,
    /// For people.
    pub label: String,
    /// Index of the acceptance.
    pub acceptance: usize,
    /// Positions before a response; `None` = as the trace has them.
    pub context: Option<u32>,
    /// Requests at once.
    pub concurrency: u32,
    /// Indices of the candidates that run.
    pub runs: Vec<usize>,
}

/// Characters of an acceptance's name in the names of its files.
const SLUG: usize = 40;

impl Group {
    /// The cell of a choice that failed here; `None` = all of them.
    pub fn failed(&self, p: &Prepared<'_>, choice: Option<Choice>, reason: String) -> FailedCell {
        let source = &p.sources[self.acceptance];
        FailedCell {
            acceptance: source.name.clone(),
            context: self.context.unwrap_or(source.prompt),
            concurrency: self.concurrency,
            choice,
            reason,
        }
    }
}

/// Plans the cells of a run.
pub(super) struct Plan<'p>(pub &'p Prepared<'p>);

impl Plan<'_> {
    /// All groups, and the cells that are not run because their cache does not fit.
    ///
    /// # Errors
    /// Weights that do not fit; nothing that fits; steps outside of what was measured, unless extrapolation is allowed.
    pub fn groups(&self) -> anyhow::Result<(Vec<Group>, Vec<RefusedCell>)> {
        let room = self.0.profiles.room()?;
        let contexts: Vec<Option<u32>> = match self.0.run.context.as_slice() {
            [] => vec![None],
            list => list.iter().copied().map(Some).collect(),
        };
        let (mut groups, mut refused) = (Vec::new(), Vec::new());
        for index in 0..self.0.sources.len() {
            for &context in &contexts {
                for &concurrency in &self.0.experiment.concurrency {
                    let mut runs = Vec::new();
                    for (i, c) in self.0.candidates.iter().enumerate() {
                        match self.0.fits(&room, index, c, context, concurrency) {
                            Ok(()) => runs.push(i),
                            Err(cell) => refused.push(cell),
                        }
                    }
                    if !runs.is_empty() {
                        groups.push(self.group(index, context, concurrency, runs));
                    }
                }
            }
        }
        if groups.is_empty() {
            let why = refused.first().map_or_else(|| "there are no cells".to_owned(), |r| r.reason.clone());
            anyhow::bail!("no cell fits into the memory; the first: {why}");
        }
        self.domain(&groups)?;
        Ok((groups, refused))
    }

    fn group(&self, index: usize, context: Option<u32>, concurrency: u32, runs: Vec<usize>) -> Group {
        let (e, source) = (self.0.experiment, &self.0.sources[index]);
        let candidates: Vec<_> = runs.iter().map(|&i| &self.0.candidates[i]).collect();
        let policies: Vec<_> = candidates.iter().map(|c| json!([c.kind, c.budget, c.params])).collect();
        let determines = json!({
            "treeline": env!("CARGO_PKG_VERSION"),
            "cost": self.0.cost.digest(),
            "acceptance": [source.name, source.digest],
            "context": context,
            "concurrency": concurrency,
            "policies": policies,
            "rounds": self.0.run.rounds,
            "response": self.0.run.response,
            "reference": self.0.run.reference,
            "seed": e.seed,
            "bootstrap": e.bootstrap,
        });
        let digest = sha256(determines.to_string().as_bytes());
        let at = context.map_or_else(String::new, |c| format!("-s{c}"));
        // A file name: what of the name does not fit into it is in the digest.
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let slug: String = source.name.chars().take(SLUG).map(plain).collect();
        let behind = context.map_or_else(String::new, |c| format!(", context {c}"));
        Group {
            key: format!("{}{at}-c{concurrency}-{}", slug.to_lowercase(), &digest[..12]),
            label: format!("{}{behind}, concurrency {concurrency}", source.name),
            acceptance: index,
            context,
            concurrency,
            runs,
        }
    }

    /// Every step that a cell begins with lies inside the cost model's domain, or extrapolation is allowed.
    fn domain(&self, groups: &[Group]) -> anyhow::Result<()> {
        let (draft_rows, mut cells, mut outside, mut first) = (self.0.profiles.draft_rows(), 0, 0, None);
        for g in groups {
            let context = g.context.unwrap_or(self.0.sources[g.acceptance].prompt);
            for &i in &g.runs {
                let c = &self.0.candidates[i];
                let query = match c.budget {
                    0 => StepQuery::plain(g.concurrency, context),
                    b => StepQuery::block(g.concurrency, b + 1, context, draft_rows),
                };
                cells += 1;
                if let Err(e) = self.0.cost.price_checked(&query) {
                    outside += 1;
                    first.get_or_insert((g, c, e));
                }
            }
        }
        match first {
            None => Ok(()),
            Some((g, c, e)) => {
                anyhow::bail!("{outside} of {cells} cells; the first, {} {} at {}: {e}", c.kind, c.budget, g.label)
            }
        }
    }
}
