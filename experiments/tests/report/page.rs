//! The page of the report on synthetic results, whole and with holes.

use crate::data::{cell, context, quickstart, summary};
use serde_json::json;
use treeline::report::{Context, answer, html, table};
use treeline::results::{CellDetail, Pair};

/// Fails unless every element is closed in order, and nothing is drawn from a value that is not a number.
pub fn check_page(page: &str) {
    let body = page.strip_prefix("<!DOCTYPE html>").expect("a document type");
    let mut open: Vec<&str> = Vec::new();
    let mut rest = body;
    while let Some(at) = rest.find('<') {
        let end = at + rest[at..].find('>').expect("a tag that ends");
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closed out of order before {}", &rest[..rest.len().min(80)]);
        } else {
            let name = tag.split_whitespace().next().expect("a name");
            if !["meta", "br"].contains(&name) {
                open.push(name);
            }
            if name == "style" {
                rest = &rest[rest.find("</style>").expect("the style ends")..];
            }
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    for bad in ["NaN", "inf\"", ">inf", "Infinity", "<script", "http://", "https://", "viewBox=\"0 0 440 0"] {
        assert!(!page.contains(bad), "{bad:?} in the page, near {}", around(page, bad));
    }
    for part in page.split("<svg").skip(1) {
        let picture = &part[..part.find("</svg>").expect("the picture ends")];
        let drawn = ["<path", "<rect", "<circle"].iter().any(|shape| picture.contains(shape));
        assert!(drawn, "an empty picture: {}", &picture[..picture.len().min(200)]);
    }
}

pub fn around<'a>(page: &'a str, what: &str) -> &'a str {
    let at = page.find(what).unwrap_or(0);
    let from = (0..=at.saturating_sub(60)).rev().find(|i| page.is_char_boundary(*i)).unwrap_or(0);
    let to = (at + what.len() + 20..page.len()).find(|i| page.is_char_boundary(*i)).unwrap_or(page.len());
    &page[from..to]
}

fn page_of(details: &[CellDetail], ctx: &Context) -> String {
    let page = html(&summary(details), details, ctx);
    check_page(&page);
    page
}

#[test]
fn the_page_of_a_quickstart_has_every_section() {
    let details = quickstart();
    let page = page_of(&details, &context());
    for id in [
        "table",
        "warnings",
        "tau",
        "position",
        "waterfall",
        "domains",
        "calibration",
        "experts",
        "throughput",
        "time",
        "phases",
        "loops",
        "reproduce",
    ] {
        assert!(page.contains(&format!("<section id=\"{id}\">")), "{id}");
    }
    for text in [
        "independent rows (formula)",
        "tokens per verify step",
        "budget (nodes without the root)",
        "20261130",
        "9f86d081884c7d65",
        "treeline run experiments/quickstart.toml",
        "prefers-color-scheme: dark",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert_eq!(page, page_of(&details, &context()), "the same results give the same page");
}

#[test]
fn sections_without_data_disappear() {
    let mut details = quickstart();
    for d in &mut details {
        d.waterfall = None;
        d.phi = None;
        d.by_depth.clear();
        d.experts_by_rows.clear();
        d.ms_by_rows.clear();
        d.phases.clear();
        d.per_request.clear();
        d.cell.step_ms = None;
        d.cell.loop_share = None;
    }
    let page = page_of(&details, &Context::default());
    for id in ["position", "waterfall", "domains", "calibration", "experts", "time", "phases", "loops", "reproduce"] {
        assert!(!page.contains(&format!("id=\"{id}\"")), "{id}");
        assert!(!page.contains(&format!("href=\"#{id}\"")), "{id}");
    }
    assert!(page.contains("<section id=\"tau\">"));
    // Without the router's shape there is no curve to compare with.
    let page = page_of(&quickstart(), &Context::default());
    assert!(page.contains("<section id=\"experts\">") && !page.contains("independent rows (formula)"));
}

/// What asks for something stands apart from what is only so, and what cells share is said once.
#[test]
fn remarks_are_said_once_and_warnings_apart() {
    let mut details = quickstart();
    for (i, d) in details.iter_mut().enumerate() {
        d.cell.notes = vec![format!("timed while up to {} cells ran side by side", 2 + i / 9)];
        if let Some(first) = d.by_depth.first_mut() {
            first.reached = d.cell.rounds - 1 - i as u64 % 4;
        }
    }
    details[3].cell.notes.push("400 of 700 steps drafted nothing".to_owned());
    details[3].by_depth[0].reached = 300;
    details[4].faults = vec![(3, "context full".to_owned()), (7, "context full".to_owned())];
    details[5].faults = vec![(3, "context full".to_owned())];
    let page = page_of(&details, &context()).replace("\u{2060}", "").replace('\u{a0}', " ");
    let section = |id: &str| {
        let from = page.find(&format!("<section id=\"{id}\">")).unwrap();
        &page[from..from + page[from..].find("</section>").unwrap()]
    };
    let (warnings, notes) = (section("warnings"), section("notes"));
    assert_eq!(warnings.matches("<li").count(), 2, "{warnings}");
    assert!(warnings.contains("3 requests ended with the same fault, request 3 of best-first 32 (T = 0.7) among them"));
    assert_eq!(notes.matches("<li").count(), 3, "{notes}");
    for text in [
        "timed while up to 2–3 cells ran side by side <span class=\"dim\">(all cells)",
        "400 of 700 steps drafted nothing <span class=\"dim\">(best-first 16 at T = 0.7)",
        "1–4 steps of a cell drafted nothing: the last token of a response needs no draft",
    ] {
        assert!(notes.contains(text), "{text:?} is not in {notes}");
    }
}

/// A bar of the steps that drafted does not end at τ of a policy that seldom drafts.
#[test]
fn a_policy_that_seldom_drafts_has_no_bar() {
    let mut details = quickstart();
    let shown = |details: &[CellDetail]| {
        let page = page_of(details, &context()).replace('\u{a0}', " ");
        let from = page.find("<section id=\"waterfall\">").unwrap();
        page[from..from + page[from..].find("</section>").unwrap()].to_owned()
    };
    assert_eq!(shown(&details).matches("adaptive ≤ 64</text>").count(), 2);
    for d in details.iter_mut().filter(|d| d.cell.policy == "adaptive" && d.cell.temperature > 0.0) {
        d.by_depth[0].reached = d.cell.rounds / 50;
    }
    let text = shown(&details);
    assert_eq!(text.matches("adaptive ≤ 64</text>").count(), 1, "{text}");
    assert!(text.contains("T = 0.7: left out, because it drafted in a part of its steps only: adaptive ≤ 64 ("));
}

#[test]
fn nothing_measured_is_said_not_drawn() {
    assert!(answer(&summary(&[]), &[], None).contains("nothing to conclude"));
    assert!(!page_of(&[], &Context::default()).contains("<svg"));
    let mut details = quickstart();
    for d in &mut details {
        (d.cell.tau, d.cell.tau_lo, d.cell.tau_hi) = (None, None, None);
    }
    assert!(answer(&summary(&details), &details, None).contains("nothing to conclude"));
    assert!(!page_of(&details, &context()).contains("<section id=\"tau\">"));
}

#[test]
fn one_request_has_no_interval_anywhere() {
    let mut one = cell("best-first", json!({}), 16, 0.7, 17.0, 2.8);
    one.per_request.truncate(1);
    one.cell.requests = 1;
    (one.cell.tau_lo, one.cell.tau_hi, one.cell.step_ms_lo, one.cell.step_ms_hi) = (None, None, None, None);
    let details = [one];
    let text = answer(&summary(&details), &details, None);
    assert!(text.starts_with("At T = 0.7 over 1 prompt, ") && !text.contains("95 %"), "{text}");
    page_of(&details, &context());
}

#[test]
fn sixty_cells_of_unknown_policies_and_several_concurrencies() {
    let mut details = Vec::new();
    for (p, policy) in ["plug-in-one", "plug-in-two", "plug-in-three", "chain", "top-k"].iter().enumerate() {
        for (b, budget) in [4u32, 8, 16, 32, 64, 128].into_iter().enumerate() {
            for concurrency in [1, 16] {
                let tau = 1.5 + 0.1 * p as f64 + 0.3 * b as f64;
                let params = json!({ "width": p % 2 + 1, "a long parameter name": "with a value" });
                let mut d = cell(policy, params, budget, 1.0, f64::from(budget) + 1.0, tau);
                d.cell.concurrency = concurrency;
                details.push(d);
            }
        }
    }
    assert_eq!(details.len(), 60);
    let page = page_of(&details, &context());
    assert!(page.matches("concurrency 16").count() > 3);
    let text = table(&summary(&details), &details, None, false, 100);
    assert!(text.lines().all(|l| l.chars().count() <= 100) && text.contains("T = 1, concurrency 16"));
}

#[test]
fn extreme_and_non_finite_figures_stay_legible() {
    let mut details = quickstart();
    details[2].cell.tau = Some(123_456_789_012.345);
    details[2].cell.tau_hi = Some(f64::INFINITY);
    details[3].cell.tok_s = Some(9.87e17);
    details[3].cell.step_ms = Some(1e-9);
    details[4].cell.tau = Some(f64::NAN);
    details[4].cell.rows_mean = Some(f64::NEG_INFINITY);
    details[5].phi = Some((f64::NAN, 1.0));
    details[5].phases[0].1 = f64::NAN;
    details[6].waterfall.as_mut().unwrap().reach = f64::INFINITY;
    details[6].waterfall.as_mut().unwrap().unreachable = f64::NAN;
    details[7].ms_by_rows[0].mean = f64::INFINITY;
    details[8].cell.loop_share = Some(f64::NAN);
    for shown in [page_of(&details, &context()), table(&summary(&details), &details, None, false, 100)] {
        let mut digits = 0;
        for c in shown.split("</style>").last().unwrap().split("<section id=\"reproduce\">").next().unwrap().chars() {
            digits = if c.is_ascii_digit() { digits + 1 } else { 0 };
            assert!(digits < 9, "a figure of nine digits");
        }
        assert!(!shown.contains("NaN") && !shown.contains(" inf"));
    }
}

#[test]
fn everything_foreign_is_escaped() {
    let evil = "<img src=x onerror=alert(1)>\"'&";
    let mut details = quickstart();
    for d in &mut details {
        d.cell.policy = format!("p{evil}");
        d.cell.workload = evil.to_owned();
        d.cell.notes = vec![evil.to_owned()];
        d.per_request[0].domain = evil.to_owned();
        d.faults = vec![(3, evil.to_owned())];
        d.phases.push((evil.to_owned(), 1.0));
    }
    let ctx = Context {
        resolved_toml: format!("name = '{evil}'"),
        manifest: json!({ evil: [evil, { "deep": evil }] }),
        command: evil.to_owned(),
        failed: vec![(evil.to_owned(), evil.to_owned())],
        ..context()
    };
    let mut summary = summary(&details);
    summary.experiment = evil.to_owned();
    summary.warnings = vec![evil.to_owned()];
    summary.comparison.pairs =
        vec![Pair { cell: 99, metric: evil.to_owned(), predicted: 1.0, measured: 2.0, error: -0.5 }];
    let page = html(&summary, &details, &ctx);
    check_page(&page);
    assert!(!page.contains("<img"), "{}", around(&page, "<img"));
    assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;"));
}
