//! Policies that size their trees, on the simulator's cost.

use crate::replay::small;
use crate::site::Site;
use treeline::results::Cell;

/// The small run with these policies, at one request and at a full batch.
fn cells(policies: &str, concurrency: &str) -> Vec<Cell> {
    let text = small().replace("concurrency = [1, 16]", &format!("concurrency = {concurrency}"));
    let text = text.replace("reference = { policy = \"best-first\", budget = 8 }\n", "");
    let text = text.replace("requests = 24", "requests = 64").replace("process =", "variants = false\nprocess =");
    let head = &text[..text.find("[[policy]]").unwrap()];
    let outcome = Site::new().go(&format!("{head}{policies}"), "run", false);
    assert_eq!(outcome.failed, []);
    outcome.summary.cells
}

fn find<'c>(cells: &'c [Cell], policy: &str, budget: u32, concurrency: u32) -> &'c Cell {
    let is = |c: &&Cell| (c.policy.as_str(), c.budget, c.concurrency) == (policy, budget, concurrency);
    cells.iter().find(is).unwrap()
}

const BEST: &str = "[[policy]]\nkind = \"best-first\"\nbudget = [8, 32]\n";

/// Nodes get dearer with company: adaptive draws fewer of them, and more tokens a second than its cap drawn full.
#[test]
fn adaptive_draws_less_where_rows_cost_more() {
    let policies = format!("{BEST}[[policy]]\nkind = \"adaptive\"\nbudget = [32]\nbudgets = [0, 2, 4, 8, 16, 32]\n");
    let cells = cells(&policies, "[1, 64]");
    let (alone, full) = (find(&cells, "adaptive", 32, 1), find(&cells, "adaptive", 32, 64));
    let rows = |c: &Cell| c.rows_mean.unwrap();
    assert!(rows(full) < 0.8 * rows(alone), "{} rows alone, {} with company", rows(alone), rows(full));
    assert!(rows(alone) <= 33.0 && full.tau.unwrap() < alone.tau.unwrap());
    let cap = find(&cells, "best-first", 32, 64);
    assert!(full.tok_s.unwrap() > cap.tok_s.unwrap(), "{:?} against {:?}", full.tok_s, cap.tok_s);
}

/// Sized by cost, sequoia's tree is no larger than its budget and no slower than the tree of its whole budget.
#[test]
fn sequoia_by_cost_is_no_slower_than_at_its_fixed_size() {
    let size = |how: &str| {
        format!(
            "[[policy]]\nkind = \"sequoia\"\nbudget = [32]\nacceptance = [0.7, 0.12, 0.05, 0.02]\nsize = \"{how}\"\n"
        )
    };
    let run = |how| cells(&size(how), "[1, 64]");
    let (by_cost, fixed) = (run("cost"), run("budget"));
    for concurrency in [1, 64] {
        let (c, f) = (find(&by_cost, "sequoia", 32, concurrency), find(&fixed, "sequoia", 32, concurrency));
        assert!(c.rows_mean.unwrap() <= f.rows_mean.unwrap() + 1e-9, "{concurrency}");
        assert!(c.tok_s.unwrap() > 0.99 * f.tok_s.unwrap(), "{concurrency}: {:?} against {:?}", c.tok_s, f.tok_s);
    }
    let rows = |n| find(&by_cost, "sequoia", 32, n).rows_mean.unwrap();
    assert!(rows(64) < rows(1), "{} alone, {} with company", rows(1), rows(64));
}

/// A calibration that is learned while it runs comes near to one that takes the drafter at its word, and above plain decoding.
#[test]
fn a_learned_calibration_is_worth_its_learning() {
    let learned = "[[policy]]\nkind = \"cost-aware\"\nbudget = [32]\ncalibration = \"learned\"\noff = false\n";
    let claimed = learned.replace("learned", "claimed");
    for concurrency in [1, 16] {
        let of = |policy: &str| {
            let cells = cells(&format!("{BEST}{policy}"), &format!("[{concurrency}]"));
            find(&cells, "cost-aware", 32, concurrency).clone()
        };
        let (l, c) = (of(learned), of(&claimed));
        assert!(l.speedup.unwrap() > 1.1, "{concurrency}: {:?}", l.speedup);
        assert!(l.tok_s.unwrap() > 0.93 * c.tok_s.unwrap(), "{concurrency}: {:?} against {:?}", l.tok_s, c.tok_s);
    }
}
