//! Scenario: eight nodes from captured graphs against sixteen without.

use super::scenarios::{View, three};
use crate::results::Scenario;
use std::path::Path;
use treeline_sim::cost::{CostModel, StepQuery};
use treeline_sim::profile::{self, Execution};

/// Both at every concurrency of the headline context, for the first acceptance that ran both budgets.
pub(super) fn scenario(view: &View<'_>) -> Option<Scenario> {
    let p = view.p;
    if p.profiles.deployment.execution != Execution::Graph {
        return None;
    }
    let mut profiles = p.profiles.clone();
    // What an engine does differently without graphs is a profile of its own.
    profiles.deployment = profile::deployment(&format!("{}-eager", profiles.deployment.name), Path::new(".")).ok()?;
    let eager = profiles.cost().ok()?;
    let both = |name: &str, c: u32| Some((view.cell(name, "best-first", 8, c)?, view.cell(name, "best-first", 16, c)?));
    let name = p
        .sources
        .iter()
        .map(|s| s.name.as_str())
        .find(|n| p.experiment.concurrency.iter().any(|&c| both(n, c).is_some()))?;
    let draft_rows = p.profiles.draft_rows();
    let step = |cost: &CostModel, c: u32, rows: f64| {
        let block = StepQuery::block(c, rows.round() as u32, view.context, draft_rows);
        cost.price(&block).ms()
    };
    let (mut rows, mut wins, mut hidden) = (Vec::new(), Vec::new(), Vec::new());
    for &c in &p.experiment.concurrency {
        let Some((b8, b16)) = both(name, c) else { continue };
        let (Some(tau16), Some(rows8), Some(rows16)) = (b16.tau, b8.rows_mean, b16.rows_mean) else { continue };
        let Some(ms16) = b16.step_ms else { continue };
        // The cell counted its own trees' experts; the quotient carries that over.
        let eager16 = ms16 * step(&eager, c, rows16) / step(&p.cost, c, rows16);
        let user = |tau: f64, ms: f64| 1e3 * tau / ms;
        let rate16 = user(tau16, eager16);
        let Some(rate8) = b8.tok_s_user else { continue };
        if rate16 > rate8 {
            wins.push(c);
        }
        // What eight more rows seem to cost where launches fill the step.
        let grows = |cost: &CostModel| step(cost, c, rows16) / step(cost, c, rows8) - 1.0;
        hidden.push((grows(&p.cost), grows(&eager)));
        rows.push(vec![
            c.to_string(),
            three(b8.step_ms),
            three(Some(rate8)),
            three(b16.step_ms),
            three(b16.tok_s_user),
            three(Some(eager16)),
            three(Some(rate16)),
        ]);
    }
    let (graph, lazy) = *hidden.first()?;
    let verdict = match wins.as_slice() {
        [] => "Eight nodes from graphs are faster at every concurrency".to_owned(),
        some => {
            let some: Vec<String> = some.iter().map(u32::to_string).collect();
            format!("Sixteen nodes without graphs are faster only at concurrency {}", some.join(", "))
        }
    };
    Some(Scenario {
        title: "Budget 8 with graphs against 16 without".to_owned(),
        text: format!(
            "{verdict}: without graphs every launch waits for the host. At the lowest concurrency eight more nodes make the step {:.0} % longer with graphs and {:.0} % without, where the launches hide what a tree costs; compare trees with graphs on. ({name}, behind {} tokens.)",
            100.0 * graph,
            100.0 * lazy,
            view.context
        ),
        columns: [
            "concurrency",
            "8, graphs: ms",
            "tok/s/user",
            "16, graphs: ms",
            "tok/s/user",
            "16, eager: ms",
            "tok/s/user",
        ]
        .map(str::to_owned)
        .into(),
        rows,
    })
}
