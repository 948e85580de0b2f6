//! `treeline report` on a run folder made of synthetic results: page, Markdown and picture through the built binary.

use crate::data::{context, quickstart, summary};
use std::path::Path;
use std::process::{Command, Output};
use treeline::report::{RoutedExperts, markdown, picture};
use treeline::results::CellDetail;

/// A finished run without its models.
fn folder(dir: &Path, details: &[CellDetail]) {
    let write = |name: &str, value: &serde_json::Value| {
        std::fs::write(dir.join(name), serde_json::to_vec_pretty(value).unwrap()).unwrap();
    };
    std::fs::create_dir(dir.join("cells")).unwrap();
    write("summary.json", &serde_json::to_value(summary(details)).unwrap());
    write("manifest.json", &context().manifest);
    for d in details {
        write(&format!("cells/{}.json", d.key), &serde_json::to_value(d).unwrap());
    }
    write("cells/adaptive.observations.json", &serde_json::json!({ "rows": [] }));
    std::fs::write(dir.join("experiment.resolved.toml"), context().resolved_toml).unwrap();
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

#[track_caller]
fn report(dir: &Path, more: &[&str], code: i32) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_treeline"));
    let Output { status, stdout, stderr } = command.arg("report").arg(dir).args(more).output().unwrap();
    let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(status.code() == Some(code) && !err.contains("panicked"), "{out}\n{err}");
    (out, err)
}

#[test]
fn a_finished_run_is_drawn_again() {
    let dir = tempfile::tempdir().unwrap();
    let details = quickstart();
    folder(dir.path(), &details);
    let (out, err) = report(dir.path(), &[], 0);
    assert!(
        out.starts_with("At T = 0.7 over 20 prompts, best-first trees commit") && out.contains("τ no loops"),
        "{out}"
    );
    assert!(err.contains("no curve of independent rows") && err.contains("report.html"), "{err}");
    let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(page.contains("<section id=\"waterfall\">") && page.contains("treeline run experiment.resolved.toml"));
    let file = dir.path().join("deep/er.svg");
    let (_, err) = report(dir.path(), &["--picture", "experiment.toml"], 2);
    assert!(err.contains("ends in .svg"), "{err}");
    let (out, _) = report(dir.path(), &["--markdown", "--picture", file.to_str().unwrap()], 0);
    assert_eq!(out, markdown(&summary(&details), &details, None, None));
    assert_eq!(std::fs::read_to_string(file).unwrap(), picture(&summary(&details), &details, None).unwrap());
}

#[test]
fn what_is_no_finished_run_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (_, err) = report(&dir.path().join("none"), &[], 2);
    assert!(err.contains("none: no such folder"), "{err}");
    let (_, err) = report(dir.path(), &[], 2);
    assert!(err.contains("holds no summary.json"), "{err}");
    let details = quickstart();
    folder(dir.path(), &details);
    let cell = dir.path().join(format!("cells/{}.json", details[4].key));
    std::fs::remove_file(&cell).unwrap();
    let (_, err) = report(dir.path(), &[], 2);
    assert!(err.contains("no file has the figures of best-first 32 at T 0.7"), "{err}");
    std::fs::write(&cell, "{\"key\": 1").unwrap();
    let (_, err) = report(dir.path(), &[], 2);
    assert!(err.contains(&format!("{}.json", details[4].key)) && err.contains("line 1"), "{err}");
}

/// The map, its picture and the answers are had from the folder alone.
#[test]
fn a_priced_run_is_drawn_again() {
    let dir = tempfile::tempdir().unwrap();
    let (summary, priced) = crate::priced::run(&crate::grid::small());
    let write = |name: &str, value: serde_json::Value| {
        std::fs::write(dir.path().join(name), serde_json::to_vec(&value).unwrap()).unwrap();
    };
    std::fs::create_dir(dir.path().join("cells")).unwrap();
    let detail = |cell: &treeline::results::Cell| {
        let mut d = crate::data::cell("plain", serde_json::json!({}), 0, 0.0, 1.0, 1.0);
        (d.cell, d.per_request) = (cell.clone(), Vec::new());
        d
    };
    for (i, cell) in summary.cells.iter().enumerate() {
        write(&format!("cells/{i:03}.json"), serde_json::to_value(detail(cell)).unwrap());
    }
    write("summary.json", serde_json::to_value(&summary).unwrap());
    write("priced.json", serde_json::to_value(&priced).unwrap());
    write("manifest.json", context().manifest);
    std::fs::write(dir.path().join("experiment.resolved.toml"), context().resolved_toml).unwrap();
    let file = dir.path().join("map.svg");
    let (out, _) = report(dir.path(), &["--picture", file.to_str().unwrap()], 0);
    assert!(out.starts_with("kimi-k2.6 on 8× b300-sxm6, at 8k context: ") && out.contains("acceptance"), "{out}");
    let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(page.contains("<section id=\"map\">") && page.contains("class=\"ceiling\""));
    assert!(std::fs::read_to_string(file).unwrap().contains("class=\"ceiling\""));
    let (out, _) = report(dir.path(), &["--markdown"], 0);
    assert_eq!(out, markdown(&summary, &[], Some(&priced), None));
}

/// Of a priced run every file is needed, whole and of this version: mixed rows would be wrong and look right.
#[test]
fn a_priced_folder_that_is_not_whole_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (summary, priced) = crate::priced::run(&crate::grid::small());
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    std::fs::create_dir(dir.path().join("cells")).unwrap();
    write("summary.json", &json(&summary));
    write("manifest.json", "{}");
    write("experiment.resolved.toml", "name = \"x\"\n[deployment]\nengine = \"y\"\n");
    let refused = |what: &[&str]| {
        let (out, err) = report(dir.path(), &[], 2);
        assert!(out.is_empty() && what.iter().all(|w| err.contains(w)), "{what:?}\n{err}");
    };
    let go_on = format!("--resume {}", dir.path().display());
    refused(&["priced.json: missing, though the run is priced", "treeline run", &go_on]);
    let whole = json(&priced);
    write("priced.json", &whole[..whole.len() / 2]);
    refused(&["priced.json", "at line 1 column", "damaged"]);
    write("priced.json", &whole.replacen("\"schema_version\":2", "\"schema_version\":1", 1));
    refused(&["priced.json: has schema_version 1, this treeline reads 2"]);
    write("priced.json", "{}");
    refused(&["priced.json: has no schema_version"]);
    write("priced.json", &whole);
    write("summary.json", &json(&summary).replacen("\"schema_version\":1", "\"schema_version\":9", 1));
    refused(&["summary.json: has schema_version 9, this treeline reads 1"]);
    write("summary.json", &json(&summary));
    write("cells/a.json", "{\"group\": \"a\", \"cells\": 3}");
    refused(&["cells/a.json", "line 1 column"]);
    std::fs::remove_file(dir.path().join("summary.json")).unwrap();
    refused(&["holds no summary.json", &go_on]);
}

/// The figures of the tables are those of the responses.
#[test]
fn markdown_has_tau_by_domain_with_and_without_loops() {
    let details = quickstart();
    let text = markdown(&summary(&details), &details, None, Some(RoutedExperts { total: 128, per_token: 4 }));
    let table = |title: &str| {
        let from = text.find(&format!("**{title}**\n\n")).unwrap_or_else(|| panic!("{title:?} is not in {text}"));
        let lines = text[from..].lines().skip(2).take_while(|l| !l.is_empty());
        lines
            .map(|l| l.trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect())
            .collect::<Vec<Vec<String>>>()
    };
    let tau = |d: &CellDetail, domain: &str, all: bool| {
        let rows = d.per_request.iter().filter(|r| r.domain == domain && (all || r.looped == Some(false)));
        let (tokens, steps) = rows.fold((0, 0), |s, r| (s.0 + r.tokens, s.1 + r.steps));
        tokens as f64 / steps as f64
    };
    for (title, all) in [("T = 0", true), ("T = 0, responses that do not loop", false), ("T = 0.7", true)] {
        let rows = table(title);
        assert_eq!(rows[0][1..6], ["humaneval", "gsm8k", "mt-bench", "code", "prose"]);
        assert!(rows.iter().all(|r| r.len() == 9), "{rows:?}");
        let of = |d: &&CellDetail| d.cell.budget > 0 && (d.cell.temperature > 0.0) == (title == "T = 0.7");
        let cells: Vec<&CellDetail> = details.iter().filter(of).collect();
        assert_eq!(rows.len(), 2 + cells.len() + 1, "{title}");
        let mean = |d: &CellDetail| rows[0][1..6].iter().map(|n| tau(d, n, all)).sum::<f64>() / 5.0;
        for (row, d) in rows[2..].iter().zip(&cells) {
            for (text, domain) in row[1..6].iter().zip(&rows[0][1..6]) {
                assert_eq!(*text, format!("{:.2}", tau(d, domain, all)), "{title}, {row:?}");
            }
            assert_eq!(row[6], format!("{:.2}", mean(d)));
            assert_eq!(row[7], format!("{:.2}", mean(d) / mean(cells[0])));
            assert!(row[8].ends_with(')') && row[8].contains('–'), "{row:?}");
        }
    }
    // Of ids 0..20 every third loops: two of the first domain's four, seven of all.
    assert_eq!(table("T = 0").last().unwrap()[1..], ["50 %", "25 %", "25 %", "50 %", "25 %", "", "", "35 %"]);
    assert_eq!(
        table("T = 0, responses that do not loop").last().unwrap()[1..],
        ["2", "3", "3", "2", "3", "", "", "13"]
    );
    assert!(!text.contains("T = 0.7, responses that do not loop"));
    let experts = table("Distinct experts per MoE layer, 4 of 128 a token");
    assert_eq!(experts[0], ["policy, nodes", "rows of a step", "T = 0.7", "T = 0", "independent rows (formula)"]);
    assert_eq!(experts[2], ["plain", "1", "4.0", "4.0", "4.0"]);
    assert!(experts.iter().any(|r| r[1] == "65" && r[0] == "best-first 64" && r[4] == "111.7"), "{experts:?}");
}

#[test]
fn markdown_stays_a_table_whatever_the_names() {
    let mut details = quickstart();
    for d in &mut details {
        d.per_request.iter_mut().for_each(|r| r.domain = "a|b\nc".to_owned());
    }
    let text = markdown(&summary(&details), &details, None, None);
    assert!(text.contains("| policy, nodes | a\\|b c | all responses (95 %) |\n| --- | ---: | ---: |\n"), "{text}");
    assert!(markdown(&summary(&[]), &[], None, None).contains("no response with drafts was measured"));
}

#[test]
fn the_picture_is_small_whole_and_self_contained() {
    let mut details = quickstart();
    let text = picture(&summary(&details), &details, None).unwrap();
    assert!(text.len() < 60_000, "{} bytes", text.len());
    let body = text.strip_prefix("<svg xmlns=\"http://www.w3.org/2000/svg\"").unwrap();
    for bad in ["NaN", "http", "url(", "<script", "<br", "&nbsp;"] {
        assert!(!body.contains(bad), "{bad}");
    }
    for needed in
        ["best-first", "spine-first", "not in the top W", "T = 0.7", "prefers-color-scheme: dark", "20 prompts"]
    {
        assert!(body.contains(needed), "{needed}");
    }
    let opened = body.matches("<svg").count() + 1;
    assert!(opened == body.matches("</svg>").count() && text.ends_with("</svg>\n"));
    // Without waterfalls the first panel stands alone.
    details.iter_mut().for_each(|d| d.waterfall = None);
    let alone = picture(&summary(&details), &details, None).unwrap();
    assert!(alone.contains("best-first") && !alone.contains("not in the top W"));
    details.iter_mut().for_each(|d| d.cell.tau = None);
    assert!(picture(&summary(&details), &details, None).is_none());
}
