//! Which sources of acceptance are priced, under which names, and what their errors do.

use crate::site::{GRID, Site, groups, json};
use std::path::Path;

/// The drafter of a process is part of what it is; a τ out of reach is found before anything runs.
#[test]
fn processes_of_other_drafters_and_levels_are_refused_where_they_stand() {
    let site = Site::new();
    let refused = |from: &str, to: &str| {
        let text = GRID.replace(from, to);
        assert_ne!(text, GRID);
        site.load(&text).unwrap_err()
    };
    let steps = refused("process = \"kimi-k2.5-dflash-mtbench\"", "process = \"kimi-k2.5-eagle3-thinking\"");
    assert!(steps.contains("step by step") && steps.contains("grid.toml:24:11") && steps.contains("^^^"), "{steps}");
    assert!(steps.contains("help: name a drafter of kind"), "{steps}");
    for (value, policy, budget) in [
        ("8.0", "best-first", 16),
        ("7.9999999", "best-first", 16),
        ("1.0000001", "chain", 7),
        ("7.1", "best-first", 6),
    ] {
        let tree = "tau = { value = 6.0, policy = \"best-first\", budget = 16 }";
        let said = refused(tree, &format!("tau = {{ value = {value}, policy = \"{policy}\", budget = {budget} }}"));
        assert!(said.contains("grid.toml:29:7") && said.contains("help: lower"), "{value}: {said}");
    }
    // The other way round: a process of blocks beside a drafter that goes step by step.
    let eagle = GRID.replace("kimi-k2.6-dflash", "kimi-k2.5-eagle3").replace("\"kimi-k2.6\"", "\"kimi-k2.5\"");
    assert!(site.load(&eagle).unwrap_err().contains("proposes a block at once"));
}

/// An EAGLE curve of 8 points on a drafter of 7 steps, with the errors of its rates in the interval.
#[test]
fn counted_rates_widen_the_interval_by_their_errors() {
    let site = Site::new();
    let from = GRID.find("[[acceptance]]").unwrap();
    let to = GRID.find("[[policy]]").unwrap();
    let source = "[[acceptance]]\nname = \"own\"\nprocess = \"kimi-k2.5-eagle3-thinking\"\n";
    let text = format!("{}{source}{}", &GRID[..from], &GRID[to..]);
    let text = text.replace("kimi-k2.6-dflash", "kimi-k2.5-eagle3").replace("\"kimi-k2.6\"", "\"kimi-k2.5\"");
    let text = text.replace("[1024, 8192]", "[1024]").replace("concurrency = [1, 16]", "concurrency = [1]");
    let answer = |text: &str, out: &str| site.go(text, out, false).priced.unwrap().answers.remove(0);
    let own = answer(&text, "own");
    let acceptance = &json(&site.path("own").join("priced.json"))["acceptances"][0];
    assert!(acceptance["source"].as_str().is_some_and(|s| s.contains("the first 7 of 8 positions")), "{acceptance}");

    // The same counts, ten times as uncertain.
    let mut process = treeline_sim::accept::process("kimi-k2.5-eagle3-thinking", Path::new(".")).unwrap();
    process.conditional.errors.iter_mut().for_each(|e| *e = (10.0 * *e).min(0.5));
    std::fs::write(site.path("own.toml"), process.to_toml().unwrap()).unwrap();
    let unsure = answer(&text.replace("\"kimi-k2.5-eagle3-thinking\"", "\"own.toml\""), "unsure");
    assert!(unsure.parts.sampling.unwrap() > 1.2 * own.parts.sampling.unwrap(), "{:?} {:?}", own.parts, unsure.parts);
    assert_eq!((unsure.speedup, unsure.parts.model), (own.speedup, own.parts.model));
    let width = |a: &treeline::results::Answer| a.hi.unwrap() - a.lo.unwrap();
    assert!(width(&unsure) > width(&own));
}

/// Names of sources are in tables, pages and file names.
#[test]
fn names_of_sources_are_checked_and_shortened() {
    let site = Site::new();
    // JSON writes strings as TOML reads them.
    let named = |name: &str| GRID.replace("name = \"chat\"", &format!("name = {}", serde_json::json!(name)));
    for bad in ["a/b", "..", "a\\b", "../x", "two\nlines", "bell\u{7}", "", " x", &"n".repeat(101)] {
        let said = site.load(&named(bad)).unwrap_err();
        assert!(said.contains("grid.toml:23:8") && said.contains("a name of 1 to 100 characters"), "{bad:?}: {said}");
    }
    // 100 characters of four bytes each, and two sources that differ only in what a file name cannot hold.
    let long = "𝛕".repeat(100);
    let text = named(&long).replace("\"maths, by its tree\"", &format!("{:?}", format!("{}!", "𝛕".repeat(99))));
    let outcome = site.go(&text, "run", false);
    assert_eq!((outcome.failed.len(), outcome.summary.cells.len()), (0, 40));
    assert!(groups(&site.path("run")).iter().all(|f| f.file_name().unwrap().len() < 100));
}

/// A deployment of one's own, its hardware beside it, of a version that no table has: priced, and said so.
#[test]
fn files_of_ones_own_name_each_other_and_say_what_prices_them() {
    let site = Site::new();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../backend-sim/profiles");
    let text = |path: &str| std::fs::read_to_string(shipped.join(path)).unwrap();
    std::fs::create_dir(site.path("sub")).unwrap();
    let hardware = text("hardware/b300-sxm6.toml").replace("name = \"b300-sxm6\"", "name = \"my-b300\"");
    std::fs::write(site.path("sub/gpu.toml"), hardware.replace('\n', "\r\n")).unwrap();
    let deployment = text("deployments/sglang-0.5.14-b300-tp8.toml")
        .replace("hardware = \"b300-sxm6\"", "hardware = \"./gpu.toml\"")
        .replacen("version = \"0.5.14\"", "version = \"9.9\"", 1);
    std::fs::write(site.path("sub/mine.toml"), &deployment).unwrap();
    let own = GRID.replace("\"sglang-0.5.14-b300-tp8\"", "\"sub/mine.toml\"").replace("[1024, 8192]", "[1024]");
    let outcome = site.go(&format!("\u{feff}{own}").replace('\n', "\r\n"), "run", false);
    let warned = outcome.summary.warnings.iter().find(|w| w.contains("no table of sglang 9.9 itself is used"));
    assert!(
        warned.is_some_and(|w| w.contains("moe of sglang 9.9: priced by sglang 0.5.14")),
        "{:?}",
        outcome.summary.warnings
    );
    let setup = outcome.priced.unwrap().setup;
    assert_eq!(setup.hardware, "my-b300");
    assert!(setup.not_modelled.iter().any(|l| l.starts_with("gemm of sglang 9.9: priced by sglang 0.5.14")));
    // As it ships, nothing is borrowed.
    let plain = site.go(&GRID.replace("[1024, 8192]", "[1024]"), "plain", false);
    assert!(!plain.summary.warnings.iter().any(|w| w.contains("itself is used")));

    // The same file with ranks that divide nothing, other hardware, and a calibration that is not there.
    std::fs::write(site.path("sub/mine.toml"), deployment.replacen("ranks = { value = 8", "ranks = { value = 3", 1))
        .unwrap();
    let said = site.load(&own).unwrap_err();
    assert!(said.contains("`ranks` = 3 of deployment") && said.contains("help: set `ranks`"), "{said}");
    std::fs::write(site.path("sub/mine.toml"), deployment).unwrap();
    let said = site.load(&own.replace("engine =", "hardware = \"h200-sxm\"\nengine =")).unwrap_err();
    assert!(said.contains("is written for my-b300, not for h200-sxm"), "{said}");
    let said =
        site.load(&own.replace("tier = \"table\"", "tier = \"calibrated\"\ncalibration = \"none.json\"")).unwrap_err();
    assert!(
        said.contains("cannot read calibration") && said.contains("help: relative paths") && said.contains("^^^"),
        "{said}"
    );
    std::fs::write(site.path("sub/gpu.toml"), text("hardware/b300-sxm6.toml").replace("system = \"b300\"\n", ""))
        .unwrap();
    let said = site.load(&own).unwrap_err();
    assert!(
        said.contains("key `system` is missing") && said.contains("grid.toml") && said.contains("help: set `system`"),
        "{said}"
    );
}
