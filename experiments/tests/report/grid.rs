//! The report of a priced run: page, sentence, table, Markdown and picture, whole and with holes.

use crate::data::context;
use crate::page::{around, check_page};
use crate::priced::{Plan, ceiling, run, single};
use treeline::report::{Context, answer, html, markdown, picture, table};
use treeline::results::{Cell, Priced, Summary};

fn page_of(summary: &Summary, priced: &Priced) -> String {
    let ctx = Context { priced: Some(priced.clone()), ..context() };
    let page = html(summary, &[], &ctx);
    check_page(&page);
    page
}

/// The text of a page without the marks that keep it together.
fn plainly(page: &str) -> String {
    page.replace('\u{2060}', "").replace('\u{a0}', " ")
}

/// Two sources, two contexts; 256 requests of the longer one do not fit.
pub fn small() -> Plan {
    Plan {
        anchors: vec![("easy", 5.3), ("hard", 2.1)],
        contexts: vec![8192, 65_536],
        users: vec![1, 32, 256],
        budgets: vec![8, 16, 64],
        room: 2_600_000,
    }
}

#[test]
fn the_page_of_a_grid_has_every_section_and_stays_small() {
    let (summary, priced) = run(&ceiling());
    assert!(summary.cells.len() + priced.refused.len() >= 5000);
    let page = page_of(&summary, &priced);
    for id in [
        "answers",
        "map",
        "waterfall",
        "breakdown",
        "curves",
        "pareto",
        "experts",
        "scenarios",
        "acceptance",
        "method",
        "warnings",
        "reproduce",
    ] {
        assert!(page.contains(&format!("<section id=\"{id}\">")), "{id}");
    }
    assert!(page.len() < 3_000_000, "{} bytes", page.len());
    // Seven maps with values, most of them folded, and all 28 without.
    assert_eq!(page.matches("class=\"plot heat\"").count(), 7 + 28);
    assert!(page.contains("Maps of the other 5 acceptance sources"));
    for text in ["speed-up over plain decoding (×)", "thin bar, held by:", "users (requests decoded together)"] {
        assert!(page.contains(text), "{text}");
    }
    assert_eq!(page, page_of(&summary, &priced), "the same results give the same page");
}

#[test]
fn a_run_without_a_grid_is_the_page_that_it_was() {
    let details = crate::data::quickstart();
    let page = html(&crate::data::summary(&details), &details, &context());
    for mark in ["class=\"plot heat", "--d10", "class=\"ceiling"] {
        assert!(!page.contains(mark), "{mark}");
    }
}

/// Budgets, gains and intervals in the sentence are those of the answers.
#[test]
fn the_sentence_says_what_to_run_and_how_far_it_carries() {
    let (summary, mut priced) = run(&small());
    let text = answer(&summary, &[], Some(&priced));
    assert!(
        text.starts_with(
            "kimi-k2.6 on 8× b300-sxm6, at 8k context: where acceptance is “easy (τ 5.3)”, trees stop paying at "
        ),
        "{text}"
    );
    assert!(text.contains("; where it is “hard (τ 2.1)”, trees stop paying at "), "{text}");
    for a in priced.answers.iter().filter(|a| a.context == 8192) {
        let half = (a.hi.unwrap() - a.lo.unwrap()) / 2.0;
        let gain = if a.speedup >= 2.0 {
            format!("({:.2}× ± {half:.2})", a.speedup)
        } else {
            format!("({:+.0} % ± {:.0} %)", 100.0 * (a.speedup - 1.0), 100.0 * half).replace('-', "−")
        };
        assert!(text.contains(&gain), "{gain:?} is not in {text}");
    }
    assert!(text.contains("none is a trace of this pair") && text.contains("trees on this engine are hypothetical"));
    // A best that is plain decoding has no gain, and one of fixed size is named by its nodes.
    for a in priced.answers.iter_mut().filter(|a| a.context == 8192) {
        (a.best.policy, a.best.budget, a.speedup) = ("plain".to_owned(), 0, 1.0);
        (a.lo, a.hi) = (Some(1.0), Some(1.0));
        if a.concurrency == 32 {
            (a.best.policy, a.best.budget, a.rows) = ("best-first".to_owned(), 24, 25.0);
            (a.speedup, a.lo, a.hi) = (1.18, Some(1.14), Some(1.22));
        }
    }
    let text = answer(&summary, &[], Some(&priced));
    let part = "run plain decoding at 1 user, 24 nodes at 32 (+18 % ± 4 %) and plain decoding at 256";
    assert!(text.contains(part), "{text}");
    priced.setup.tier = "bound".to_owned();
    assert!(answer(&summary, &[], Some(&priced)).contains("never a prediction"));
}

/// The ceiling of the sentence is the best budget of the cells, and a tree that is slower than plain decoding pays nowhere.
#[test]
fn the_ceiling_is_where_the_cells_have_it() {
    let (mut summary, priced) = run(&small());
    let at = |c: &Cell, users| c.acceptance.as_deref() == Some("easy") && c.context == 8192 && c.concurrency == users;
    for (users, best) in [(1, 64), (32, 16), (256, 8)] {
        for c in summary.cells.iter_mut().filter(|c| at(c, users) && c.policy == "best-first") {
            c.speedup = Some(if c.budget == best { 1.5 } else { 1.2 });
        }
    }
    let text = answer(&summary, &[], Some(&priced));
    assert!(text.contains("trees stop paying at 64 nodes for 1 user, 16 for 32 and 8 for 256: run "), "{text}");
    for c in summary.cells.iter_mut().filter(|c| at(c, 1) && c.policy == "best-first") {
        c.speedup = Some(if c.budget == 8 { 1.5 } else { 1.2 });
    }
    for c in summary.cells.iter_mut().filter(|c| at(c, 256) && c.policy == "best-first") {
        c.speedup = Some(0.8);
    }
    let text = answer(&summary, &[], Some(&priced));
    let part = "at 8 nodes for 1 user, 16 for 32 and 0 for 256";
    assert!(text.contains(part) && !text.contains("nodes would give 20 % less"), "{text}");
}

/// A cliff of the tables is not laid at the nodes' door.
#[test]
fn a_step_that_outgrows_its_rows_is_named() {
    let (mut summary, priced) = run(&small());
    let is = |c: &&mut Cell| c.concurrency == 32 && c.context == 8192 && c.acceptance.as_deref() == Some("easy");
    for c in summary.cells.iter_mut().filter(is).filter(|c| c.policy == "best-first") {
        c.step_ms = Some(if c.budget < 16 { 20.0 } else { 70.0 });
    }
    let page = plainly(&page_of(&summary, &priced));
    assert!(page.contains("A step grows faster than its rows from 8 to 16 nodes:"));
}

/// What the interval is made of, who is next and what would change it stand beside the headline.
#[test]
fn the_page_names_the_parts_the_runner_up_and_the_flips() {
    let (summary, mut priced) = run(&small());
    let at = priced.answers.iter().position(|a| a.context == 8192 && a.concurrency == 32).unwrap();
    let a = &mut priced.answers[at];
    a.flips = vec![treeline::results::Flip {
        key: "sibling".to_owned(),
        input: "sibling independence".to_owned(),
        change: "at its low value".to_owned(),
        best_after: treeline::results::Choice { policy: "chain".to_owned(), budget: 7 },
        loss: 0.034,
    }];
    a.p_best = Some(0.61);
    let page = plainly(&page_of(&summary, &priced));
    for text in [
        "half-widths sampling ± 1 %, model ± 3 %, transfer ± 2 %",
        "It is best in 61 % of the resamples; next is",
        "sibling independence at its low value: chain 7",
        "would then lose 3 %",
        "best in 61 %, else",
        "times: table+flops; τ: fitted process.",
    ] {
        assert!(page.contains(text), "{text:?} is not in the page");
    }
}

#[test]
fn what_does_not_fit_is_hatched_and_says_what_would() {
    let (summary, priced) = run(&small());
    assert!(priced.refused.iter().all(|r| r.context == 65_536 && r.concurrency == 256));
    let page = plainly(&page_of(&summary, &priced));
    assert!(page.contains("class=\"hatch\"") && page.contains("at most 39 users"), "no hatching");
    assert!(page.contains("lower the cap to 39") && page.contains("does not fit"));
}

#[test]
fn a_grid_of_one_cell_and_one_of_refusals_are_pages() {
    let (summary, priced) = run(&single());
    let page = page_of(&summary, &priced);
    assert!(page.contains("class=\"ceiling\""));
    let (summary, priced) = run(&Plan { room: 0, ..small() });
    assert!(summary.cells.is_empty() && !priced.refused.is_empty());
    let page = page_of(&summary, &priced);
    assert!(page.contains("class=\"hatch\"") && !page.contains("class=\"ceiling\""));
    let text = answer(&summary, &[], Some(&priced));
    assert!(text.contains("72 cells refused") && text.contains("nothing to conclude"), "{text}");
    let nothing = Priced::default();
    let (summary, _) = run(&Plan { anchors: Vec::new(), ..small() });
    assert!(answer(&summary, &[], Some(&nothing)).contains("nothing to conclude"));
    assert!(!page_of(&summary, &nothing).contains("<svg"));
    assert!(picture(&summary, &[], Some(&nothing)).is_none());
    assert_eq!(table(&summary, &[], Some(&nothing), false, 100), "");
}

/// Values that are absent or not finite are dashes or nothing, never drawn.
#[test]
fn holes_and_non_finite_figures_stay_legible() {
    let (mut summary, mut priced) = run(&small());
    summary.cells[0].speedup = None;
    summary.cells[1].speedup = Some(f64::NAN);
    summary.cells[2].tau = Some(f64::INFINITY);
    summary.cells[3].step_ms = Some(f64::NAN);
    summary.cells[4].tok_s_gpu = Some(0.0);
    summary.cells[5].speedup = Some(123_456_789_012.345);
    for c in &mut summary.cells[6..12] {
        (c.tau, c.speedup, c.tok_s_user) = (None, None, None);
    }
    priced.answers[0].speedup = f64::NAN;
    priced.answers[1].lo = Some(f64::NEG_INFINITY);
    priced.answers[1].parts.model = Some(f64::NAN);
    priced.answers[2].rows = f64::NAN;
    priced.answers.remove(3);
    priced.curves[0].points[3].table_ms = Some(f64::NAN);
    priced.curves[0].error = Some(f64::INFINITY);
    priced.curves[1].points.clear();
    priced.breakdowns[0].ops[0].ms = f64::NAN;
    priced.breakdowns[1].ops.clear();
    priced.experts[0].points[4].u = f64::NAN;
    priced.acceptances[0].conditional[2] = f64::NAN;
    priced.acceptances[1].anchor_tau = None;
    let page = page_of(&summary, &priced);
    let shown = [
        page,
        markdown(&summary, &[], Some(&priced), None),
        table(&summary, &[], Some(&priced), false, 200),
        picture(&summary, &[], Some(&priced)).unwrap(),
    ];
    for text in &shown {
        let body = text.split("</style>").last().unwrap().split("<section id=\"reproduce\">").next().unwrap();
        let mut digits = 0;
        for c in body.chars() {
            digits = if c.is_ascii_digit() { digits + 1 } else { 0 };
            assert!(digits < 9, "a figure of nine digits");
        }
        assert!(!text.contains("NaN") && !text.contains(" inf") && !text.contains(">inf"), "{}", around(text, "NaN"));
    }
}

#[test]
fn everything_foreign_in_a_grid_is_escaped() {
    let evil = "<img src=x onerror=alert(1)>\"'&|";
    let (mut summary, mut priced) = run(&small());
    for c in &mut summary.cells {
        c.acceptance = c.acceptance.as_ref().map(|a| format!("{a}{evil}"));
        c.notes = vec![evil.to_owned()];
    }
    priced.acceptances.iter_mut().for_each(|a| (a.name, a.source) = (format!("{}{evil}", a.name), evil.to_owned()));
    priced.answers.iter_mut().for_each(|a| a.acceptance = format!("{}{evil}", a.acceptance));
    priced.refused.iter_mut().for_each(|r| (r.acceptance, r.reason) = (format!("{}{evil}", r.acceptance), evil.into()));
    priced.breakdowns.iter_mut().flat_map(|b| &mut b.ops).for_each(|o| o.name = format!("{}{evil}", o.name));
    priced.setup.engine = evil.to_owned();
    priced.setup.hypothetical = Some(evil.to_owned());
    priced.setup.describe = vec![evil.to_owned()];
    priced.scenarios[0].rows[0][0] = evil.to_owned();
    summary.experiment = evil.to_owned();
    let page = page_of(&summary, &priced);
    assert!(!page.contains("<img"), "{}", around(&page, "<img"));
    assert!(!picture(&summary, &[], Some(&priced)).unwrap().contains("<img"));
    // A name with a bar does not open a column.
    let text = markdown(&summary, &[], Some(&priced), None);
    let table: Vec<&str> = text.lines().filter(|l| l.starts_with("| easy")).collect();
    assert!(!table.is_empty() && table.iter().all(|l| l.replace("\\|", "").matches('|').count() == 10), "{table:?}");
}

#[test]
fn the_table_fits_its_terminal_and_markdown_has_the_map() {
    let (summary, priced) = run(&small());
    for width in [200, 120, 80] {
        let text = table(&summary, &[], Some(&priced), false, width);
        assert!(text.lines().filter(|l| !l.contains("report.html")).all(|l| l.chars().count() <= width), "{text}");
        assert!(text.contains("acceptance") && text.contains("gain") && !text.contains('\x1b'));
    }
    assert!(table(&summary, &[], Some(&priced), true, 100).contains("\x1b[2m"));
    let text = markdown(&summary, &[], Some(&priced), None);
    let cell = summary.cells.iter().find(|c| c.budget == 16 && c.concurrency == 32 && c.context == 8192).unwrap();
    let row = text.lines().find(|l| l.starts_with("| 16 |")).unwrap_or_else(|| panic!("no row of 16 nodes in {text}"));
    assert!(row.contains(&format!("| {:.2} |", cell.speedup.unwrap())), "{row}");
}

/// The picture stands alone: its own style, no network, both leading sources.
#[test]
fn the_picture_shows_the_leading_maps() {
    let (summary, priced) = run(&small());
    let text = picture(&summary, &[], Some(&priced)).unwrap();
    assert!(text.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"") && text.ends_with("</svg>\n"));
    assert_eq!(text.matches("class=\"plot heat\"").count(), 2);
    assert!(text.contains("easy (τ 5.3)") && text.contains("hard (τ 2.1)") && text.contains("prefers-color-scheme"));
    assert_eq!(text.replace("http://www.w3.org/2000/svg", "").matches("http").count(), 0);
}
