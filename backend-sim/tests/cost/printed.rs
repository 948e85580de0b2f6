//! The breakdown that docs/cost-model.md prints, and what it must show.

use super::scene::Scene;
use treeline_core::log::Phase;
use treeline_sim::cost::{CostModel, Limit, OpLine, StepQuery, Tier};

fn print(title: &str, columns: &[Vec<OpLine>]) {
    println!("\n{title}");
    for (i, first) in columns[0].iter().enumerate() {
        let cells: Vec<String> = columns
            .iter()
            .map(|lines| {
                let l = &lines[i];
                format!("{:.0} | {:.0} | {}", l.us, l.bound_us, l.limit.name())
            })
            .collect();
        println!("| {} | {} | {} | {} |", first.name, first.calls, cells.join(" | "), first.tier.name());
    }
    for lines in columns {
        let (us, bound): (f64, f64) = (lines.iter().map(|l| l.us).sum(), lines.iter().map(|l| l.bound_us).sum());
        println!("total {us:.0} µs, bound {bound:.0} µs");
    }
}

fn share_of_bandwidth(model: &CostModel, q: &StepQuery) -> f64 {
    let lines = model.breakdown(q);
    lines.iter().map(|l| l.bound_us).sum::<f64>() / lines.iter().map(|l| l.us).sum::<f64>()
}

/// "About 85 % of a one-row step of today's engines is not bandwidth time."
#[test]
fn a_breakdown_shows_that_one_row_is_latency_and_many_are_experts() {
    let scene = Scene::kimi_b300();
    let model = Scene { drafter: None, ..scene.clone() }.model(Tier::Table);
    let (one, many) = (StepQuery::plain(1, 4096), StepQuery::plain(64, 4096));
    print("1 and 64 requests, plain, context 4096", &[model.breakdown(&one), model.breakdown(&many)]);
    let latency = 1.0 - share_of_bandwidth(&model, &one);
    assert!((0.8..0.92).contains(&latency), "{latency}");
    let lines = model.breakdown(&many);
    let most = lines.iter().max_by(|a, b| a.us.total_cmp(&b.us)).unwrap();
    assert_eq!(most.name, "routed experts");
    let drafting = scene.model(Tier::Table);
    let q = StepQuery::block(8, 17, 4096, 8);
    let draft: Vec<OpLine> = drafting.breakdown(&q).into_iter().filter(|l| l.phase == Phase::Draft).collect();
    print("draft of 8 requests, context 4096", &[draft]);
}

/// Far from bandwidth and arithmetic is not yet latency: experts that take twenty times as long for 520 rows as for one are
/// held by their kernel.
#[test]
fn an_op_that_grows_with_its_work_is_not_held_by_latency() {
    let model = Scene { drafter: None, ..Scene::kimi_b300() }.model(Tier::Table);
    let experts = |requests: u32, rows: u32| {
        let lines = model.breakdown(&StepQuery::block(requests, rows, 4096, 8));
        lines.into_iter().find(|l| l.name == "routed experts").unwrap()
    };
    let (few, many) = (experts(1, 1), experts(8, 65));
    assert_eq!((few.limit, many.limit), (Limit::Latency, Limit::Kernel));
    assert!(many.us > 10.0 * few.us && many.us > 3.0 * many.bound_us, "{few:?} {many:?}");
}
