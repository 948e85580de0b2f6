//! The answer and the terminal table of the report on synthetic results.

use crate::data::{cell, quickstart, summary};
use serde_json::json;
use treeline::report::{answer, table};
use treeline::results::{CellDetail, RequestRow};

#[test]
fn the_answer_names_budgets_intervals_the_chain_and_the_reservation() {
    let details = quickstart();
    let text = answer(&summary(&details), &details, None);
    let tau = |i: usize| format!("{:.2}", details[i].cell.tau.unwrap());
    assert!(text.starts_with("At T = 0.7 over 20 prompts, best-first trees commit "), "{text}");
    for part in [
        format!("{} tokens a step with 8 nodes (95 % ", tau(2)),
        format!("{} with 16 (", tau(3)),
        format!("and {} with 64 (", tau(5)),
        format!("against {} for the 7-node chain (", tau(1)),
        "on the same prompts, 64 nodes commit 1.".to_owned(),
    ] {
        assert!(text.contains(&part), "{part:?} is not in {text}");
    }
    assert!(text.ends_with("; a CPU's time is no prediction of a GPU's."), "{text}");
    assert_eq!(text.matches(". ").count(), 0, "one sentence: {text}");
}

/// The difference is of the same requests: with one request changed by a lot in both cells it stays as it was.
#[test]
fn the_difference_in_the_answer_is_paired() {
    let mut details =
        vec![cell("chain", json!({}), 7, 0.7, 8.0, 2.2), cell("best-first", json!({}), 16, 0.7, 17.0, 2.8)];
    for (d, steps) in details.iter_mut().zip([60u64, 50]) {
        for (i, r) in d.per_request.iter_mut().enumerate() {
            *r = RequestRow { steps: steps * (1 + i as u64), tokens: 120 * (1 + i as u64), ..r.clone() };
        }
    }
    let text = answer(&summary(&details), &details, None);
    // 120/50 − 120/60 in every request: no spread is left.
    assert!(text.contains("16 nodes commit 0.40 tokens more than the chain (95 % 0.40 to 0.40)"), "{text}");
    details.swap(0, 1);
    (details[0].cell.policy, details[1].cell.policy) = ("chain".to_owned(), "best-first".to_owned());
    let text = answer(&summary(&details), &details, None);
    assert!(text.contains("commit 0.40 tokens fewer than the chain (95 % 0.40 to 0.40)"), "{text}");
    for (i, r) in details[1].per_request.iter_mut().enumerate() {
        r.tokens = if i % 2 == 0 { r.steps * 3 } else { r.steps * 2 };
    }
    let text = answer(&summary(&details), &details, None);
    assert!(text.contains("may be chance"), "{text}");
    for r in &mut details[1].per_request {
        r.id += 1000;
    }
    let text = answer(&summary(&details), &details, None);
    assert!(!text.contains("on the same prompts"), "no pair, no paired difference: {text}");
}

/// A run of greedy text alone is judged by its loops.
#[test]
fn an_answer_about_looping_text_says_so() {
    let mut details = quickstart();
    assert!(!answer(&summary(&details), &details, None).contains("loop"));
    details.retain(|d| d.cell.temperature == 0.0);
    let text = answer(&summary(&details), &details, None);
    let best = details.iter().find(|d| d.cell.budget == 64).unwrap();
    let kept = best.per_request.iter().filter(|r| r.looped == Some(false));
    let (tokens, steps) = kept.fold((0, 0), |s, r| (s.0 + r.tokens, s.1 + r.steps));
    let part = format!(
        "; 35 % of the responses end in a loop, and without them 64 nodes commit {:.2}",
        tokens as f64 / steps as f64
    );
    assert!(text.contains(&part), "{part:?} is not in {text}");
}

#[test]
fn a_better_policy_is_not_passed_over() {
    let mut details = quickstart();
    details.push(cell("talon", json!({}), 48, 0.7, 49.0, 4.4));
    let text = answer(&summary(&details), &details, None);
    let tau = details.last().unwrap().cell.tau.unwrap();
    assert!(text.contains(&format!("; talon with 48 nodes reaches {tau:.2}")), "{text}");
}

#[test]
fn a_replayed_run_says_so_and_does_not_speak_of_a_cpu() {
    let mut details = quickstart();
    for d in &mut details {
        d.cell.backend = "sim".to_owned();
        d.cell.source.tau = "replayed".to_owned();
        d.cell.speedup = None;
    }
    let text = answer(&summary(&details), &details, None);
    assert!(text.ends_with("; τ is replayed, not measured."), "{text}");
}

#[test]
fn the_table_is_aligned_and_fits() {
    let details = quickstart();
    for width in [120, 100, 80, 40] {
        let text = table(&summary(&details), &details, None, false, width);
        let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with("not shown")).collect();
        assert!(lines.iter().all(|l| l.chars().count() <= width), "{text}");
        assert!(!text.contains('\x1b'));
        assert_eq!(text.contains("not shown for want of width"), width < 120, "{text}");
        // τ of every row ends in the same column as its head.
        let head = lines[1].chars().position(|c| c == 'τ').unwrap();
        for line in lines.iter().filter(|l| l.starts_with("best-first") || l.starts_with("plain")) {
            let before: Vec<char> = line.chars().collect();
            assert!(before[head].is_ascii_digit() && before.get(head + 1).is_none_or(|c| *c == ' '), "{text}");
        }
    }
    assert!(table(&summary(&details), &details, None, true, 100).contains("\x1b[1m"));
    assert_eq!(table(&summary(&[]), &[], None, false, 100), "");
}

#[test]
fn missing_values_are_dashes_and_empty_columns_go() {
    let mut details = quickstart();
    for d in &mut details {
        d.cell.step_ms = None;
        d.cell.tok_s = None;
        d.cell.speedup = None;
    }
    details[3].cell.experts_mean = None;
    let text = table(&summary(&details), &details, None, false, 100);
    assert!(!text.contains("step ms") && !text.contains("tok/s") && text.contains("experts"), "{text}");
    let row = text.lines().filter(|l| l.starts_with("best-first")).nth(1).unwrap();
    assert!(row.contains('–') && !row.contains("0.0 "), "{row}");
}

/// Greedy text of small models loops, loops are easy to draft: τ of the other responses stands beside.
#[test]
fn tau_without_loops_stands_beside_tau_where_something_loops() {
    let mut details = quickstart();
    let shown = |details: &[CellDetail]| table(&summary(details), details, None, false, 120);
    let text = shown(&details);
    assert!(text.contains("τ no loops"), "{text}");
    let kept: Vec<&RequestRow> = details[13].per_request.iter().filter(|r| r.looped == Some(false)).collect();
    let tokens: u64 = kept.iter().map(|r| r.tokens).sum();
    let tau = tokens as f64 / kept.iter().map(|r| r.steps).sum::<u64>() as f64;
    assert!(kept.len() == 13 && details[13].cell.budget == 32 && details[13].cell.temperature == 0.0);
    let row = text.lines().filter(|l| l.starts_with("best-first")).nth(6).unwrap();
    assert!(row.contains(&format!("  {tau:.2}  ")), "{tau:.2} is not in {row}");
    details.retain(|d| d.cell.temperature > 0.0);
    assert!(!shown(&details).contains("τ no loops"));
}

/// A chain of many lengths is still what the trees are compared with.
#[test]
fn the_answer_is_about_trees_where_there_are_any() {
    let mut details: Vec<_> = [3, 5, 7].map(|b| cell("chain", json!({}), b, 0.7, f64::from(b) + 1.0, 2.2)).into();
    let text = answer(&summary(&details), &details, None);
    assert!(text.contains("the chain commits") && !text.contains("against"), "{text}");
    details.push(cell("best-first", json!({}), 16, 0.7, 17.0, 2.0));
    let text = answer(&summary(&details), &details, None);
    assert!(text.contains("best-first trees commit") && text.contains("for the 7-node chain"), "{text}");
}

/// The most tokens a step are not always the most tokens a second, and synthetic weights are said to be that.
#[test]
fn an_answer_from_a_gpu_names_the_fastest_budget_and_synthetic_weights() {
    let mut details =
        vec![cell("best-first", json!({}), 8, 0.7, 9.0, 2.4), cell("best-first", json!({}), 64, 0.7, 65.0, 3.1)];
    for (d, speedup) in details.iter_mut().zip([1.25, 0.6]) {
        d.cell.backend = "cuda".to_owned();
        d.cell.speedup = Some(speedup);
    }
    let text = answer(&summary(&details), &details, None);
    assert!(
        text.contains("64 nodes run at 0.60 times the speed of plain decoding, best-first with 8 nodes at 1.25"),
        "{text}"
    );
    assert!(!text.contains("synthetic"), "{text}");
    details[1].cell.speedup = Some(1.3);
    details[1].cell.notes.push("synthetic weights: times are those of one rank's shapes".to_owned());
    let text = answer(&summary(&details), &details, None);
    assert!(
        text.contains("64 nodes run at 1.30 times the speed of plain decoding.")
            && text.contains("weights are synthetic"),
        "{text}"
    );
}
