//! What was not computed, what failed, and idle time: said in the sentence, the tables and the page, never left out.

use crate::grid::small;
use crate::priced::run;
use treeline::report::{Context, answer, html, markdown, table};
use treeline::results::{Choice, FailedCell, Priced, Summary};

fn plain(text: &str) -> String {
    text.replace('\u{a0}', " ").replace('\u{2060}', "")
}

fn page(summary: &Summary, priced: &Priced) -> String {
    plain(&html(summary, &[], &Context { priced: Some(priced.clone()), ..Context::default() }))
}

/// A part that nobody computed makes every interval a lower bound, in words.
#[test]
fn a_part_that_was_not_computed_is_no_part_of_nought() {
    let (summary, mut priced) = run(&small());
    for a in &mut priced.answers {
        a.parts.model = None;
        a.left_out = vec!["model: `variants = false`".to_owned()];
        a.flips.clear();
    }
    let text = answer(&summary, &[], Some(&priced));
    assert!(
        text.contains(" ± at least ") && text.contains("leave something out (model: `variants = false`)"),
        "{text}"
    );
    let lines = table(&summary, &[], Some(&priced), false, 300);
    assert!(lines.contains("± at least ") && lines.contains("none of the inputs that were moved"), "{lines}");
    assert!(!lines.contains("no single input"), "{lines}");
    assert!(lines.contains("“at least”, since not all was computed: model: `variants = false`"), "{lines}");
    let text = markdown(&summary, &[], Some(&priced), None);
    assert!(text.contains("\n* “at least”, since not all was computed: model"), "{text}");
    let page = page(&summary, &priced);
    for text in
        ["sampling ± 1 %, model not computed, transfer ± 2 %", "1 / not computed / 2", "Left out of the intervals"]
    {
        assert!(page.contains(text), "{text:?} is not in the page");
    }
}

/// No interval is said to be none.
#[test]
fn an_interval_of_nothing_is_not_drawn_as_certainty() {
    let (summary, mut priced) = run(&small());
    for a in &mut priced.answers {
        (a.lo, a.hi, a.p_best, a.requests) = (None, None, None, 2);
        a.parts = Default::default();
        a.left_out = vec!["sampling: 2 requests are too few".to_owned()];
    }
    let text = answer(&summary, &[], Some(&priced));
    assert!(text.contains("(no interval)") && !text.contains('±'), "{text}");
    assert!(page(&summary, &priced).contains("too few requests tell"));
}

/// A candidate that failed is named beside the answer that it is not in; a setting of which all failed has its line.
#[test]
fn what_failed_is_named_with_its_reason() {
    let (mut summary, mut priced) = run(&small());
    let failed = |concurrency, choice| FailedCell {
        acceptance: "easy".to_owned(),
        context: 8192,
        concurrency,
        choice,
        reason: "it broke".to_owned(),
    };
    let one = Choice { policy: "best-first".to_owned(), budget: 16 };
    priced.failed = vec![failed(1, Some(one)), failed(32, None)];
    priced.answers.retain(|a| (a.acceptance.as_str(), a.context, a.concurrency) != ("easy", 8192, 32));
    summary.cells.retain(|c| (c.acceptance.as_deref(), c.context, c.concurrency) != (Some("easy"), 8192, 32));
    let text = answer(&summary, &[], Some(&priced));
    assert!(text.contains("2 cells failed and are in no answer"), "{text}");
    for text in [table(&summary, &[], Some(&priced), false, 300), markdown(&summary, &[], Some(&priced), None)] {
        assert!(text.contains("(1 failed)"), "{text}");
        assert!(text.contains("failed and in no answer: best-first 16 (easy, 8k context, 1 user): it broke"), "{text}");
        assert!(text.contains("every candidate (easy, 8k context, 32 users): it broke"), "{text}");
    }
    let page = page(&summary, &priced);
    assert!(page.contains("1 candidate failed") && page.contains(">failed<"), "the page is silent");
}

/// Where requests arrive by a clock, throughput with its idle time and the busy share have columns of their own.
#[test]
fn an_open_loop_shows_its_idle_time() {
    let (mut summary, priced) = run(&small());
    assert!(!table(&summary, &[], Some(&priced), false, 300).contains("busy"));
    summary.cells.iter_mut().for_each(|c| c.busy = Some(0.25));
    let text = table(&summary, &[], Some(&priced), false, 300);
    assert!(text.contains("tok/s") && text.contains("busy") && text.contains("25 %"), "{text}");
    assert!(text.contains("gains are of the engine while it works"), "{text}");
    assert!(answer(&summary, &[], Some(&priced)).contains("engines work 25 % of the time"));
    let page = page(&summary, &priced);
    assert!(page.contains("idle included") && page.contains("Busy"), "no column");
}

/// A table's cells hold text, whatever is in them.
#[test]
fn the_head_of_the_map_is_plain_text() {
    let (summary, priced) = run(&small());
    let text = markdown(&summary, &[], Some(&priced), None);
    assert!(text.contains("| nodes, by users |") && !text.contains('\\'), "{text}");
}
