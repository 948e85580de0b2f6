//! The tables that a model card quotes, as Markdown.

use super::model::groups;
use super::{RoutedExperts, domains, grid};
use crate::results::{CellDetail, Priced, Summary};

/// τ by domain, policy and temperature with the loop share, and distinct experts by rows beside the formula of independent
/// rows (where `experts` is known). Ends with a newline; says so when nothing was measured. A priced run has its
/// answers and the maps of its leading acceptance sources instead.
#[must_use]
pub fn markdown(
    summary: &Summary,
    details: &[CellDetail],
    priced: Option<&Priced>,
    experts: Option<RoutedExperts>,
) -> String {
    if let Some(priced) = priced {
        return grid::markdown(&grid::View::new(summary, priced));
    }
    let groups = groups(summary, details);
    let mut grids = domains::by_domain(&groups);
    if grids.is_empty() {
        return format!("{}: no response with drafts was measured.\n", summary.experiment);
    }
    let mut workloads: Vec<&str> = Vec::new();
    for cell in &summary.cells {
        if !workloads.contains(&cell.workload.as_str()) {
            workloads.push(&cell.workload);
        }
    }
    let lead = format!(
        "τ, tokens per verify step with the bonus token. {}: {}. A domain's τ is Σ tokens / Σ steps of its responses; \
         intervals: bootstrap over all responses.\n",
        summary.experiment,
        workloads.join("; ")
    );
    grids.extend(domains::experts(&groups, experts));
    let tables: Vec<String> = std::iter::once(lead).chain(grids.iter().map(domains::Grid::markdown)).collect();
    tables.join("\n")
}
