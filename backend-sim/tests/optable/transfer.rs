//! One machine left out: H200's tables from those of Blackwell machines by datasheet ratios.

use super::document;
use std::path::Path;
use treeline_sim::optable::transfer::{Rule, leave_out, predict};
use treeline_sim::optable::{OpTables, Rates, Work};
use treeline_sim::profile;

fn rates(name: &str) -> Rates {
    Rates::from(&profile::hardware(name, Path::new(".")).unwrap())
}

/// Prints the table of docs/optables.md and holds the document to it.
#[test]
fn h200_from_b200_and_b300() {
    let h200 = rates("h200-sxm");
    let doc = document("optables.md");
    let mut missing = Vec::new();
    let mut ops = 0;
    for (system, name) in [("b200", "b200-sxm"), ("b300", "b300-sxm6")] {
        for t in leave_out(OpTables::shipped(), ("h200", &h200), (system, &rates(name))) {
            let spread = |s: &treeline_sim::optable::transfer::Spread| {
                format!("{:.0} % | {:.0} % | {:+.0} %", 100.0 * s.median, 100.0 * s.p90, 100.0 * s.bias)
            };
            let line = format!(
                "| {} | {} | {} | {} | {} | {} |",
                t.op,
                t.engine,
                t.from,
                t.cells,
                spread(&t.ratio),
                spread(&t.bound)
            );
            println!("{line}");
            ops += 1;
            assert!(t.cells >= 20 && t.ratio.median.is_finite() && t.bound.p90 >= t.bound.median, "{line}");
            if !doc.contains(&line) {
                missing.push(line);
            }
        }
    }
    assert!(ops >= 20, "{ops}");
    assert!(missing.is_empty(), "docs/optables.md lacks\n{}", missing.join("\n"));
}

#[test]
fn a_machine_predicts_itself() {
    let b300 = rates("b300-sxm6");
    for t in leave_out(OpTables::shipped(), ("b300", &b300), ("b300", &b300)) {
        // Tables of the same key and another kernel also count, so some cells may differ; most are the same.
        assert!(t.bound.median < 1e-9 && t.ratio.median < 1e-9, "{t:?}");
    }
}

#[test]
fn rules_scale_what_binds() {
    let (a, b) =
        (Rates { bytes_s: 1e12, flops_s: 1e15, link_s: 1e11 }, Rates { bytes_s: 2e12, flops_s: 8e15, link_s: 4e11 });
    let memory = Work { bytes: 1e9, flops: 1e9, link: 0.0 };
    let compute = Work { bytes: 1e6, flops: 1e13, link: 0.0 };
    let link = Work { bytes: 0.0, flops: 0.0, link: 1e8 };
    assert_eq!((memory.bound_us(&a), compute.bound_us(&a), link.bound_us(&a)), (1000.0, 10_000.0, 1000.0));
    let near = |x: f64, y: f64| assert!((x / y - 1.0).abs() < 1e-12, "{x} {y}");
    near(predict(1200.0, &memory, &a, &b, Rule::Ratio), 600.0);
    near(predict(1200.0, &memory, &a, &b, Rule::Bound), 700.0);
    near(predict(20_000.0, &compute, &a, &b, Rule::Ratio), 2500.0);
    near(predict(20_000.0, &compute, &a, &b, Rule::Bound), 11_250.0);
    near(predict(1010.0, &link, &a, &b, Rule::Bound), 260.0);
    // A time under its bound (a cache that holds the weights) becomes the bound.
    near(predict(500.0, &memory, &a, &b, Rule::Bound), 500.0);
    near(predict(5.0, &Work::default(), &a, &b, Rule::Ratio), 5.0);
}
