//! Ctrl-C on a long simulation, and that it moves meanwhile.
#![cfg(unix)]

use crate::site::{GRID, Site};
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn begin(site: &Site, text: &str) -> Child {
    std::fs::write(site.path("long.toml"), text).unwrap();
    Command::new(env!("CARGO_BIN_EXE_treeline"))
        .args([Path::new("run"), &site.path("long.toml"), Path::new("--out"), &site.path("run")])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn interrupt(child: &Child) {
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// An interrupted run says how it goes on, and does.
#[test]
fn an_interrupted_run_says_how_it_goes_on() {
    let site = Site::new();
    let text = GRID.replace("rounds = 512", "rounds = 100000000");
    let mut child = begin(&site, &text);
    let dir = site.path("run");
    let begun = Instant::now();
    while !dir.join("manifest.json").is_file() && begun.elapsed() < Duration::from_secs(60) {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(10));
    }
    interrupt(&child);
    let status = child.wait().unwrap();
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(status.code(), Some(130), "{err}");
    let hint = format!("`treeline run {} --resume {}` goes on", site.path("long.toml").display(), dir.display());
    assert!(err.contains("interrupted: ") && err.contains(&hint), "{err}");
    // With fewer rounds, so that a test sees its end: the folder is taken as it is.
    let resumed = site.go(GRID, "run", true);
    assert_eq!((resumed.failed.len(), resumed.summary.cells.len()), (0, 40));
}

/// A cell of hours tells how far it is.
#[test]
fn a_long_cell_is_heard_of_while_it_runs() {
    use treeline::config::Backend;
    use treeline::priced::Prepared;
    let site = Site::new();
    let text = GRID.replace("rounds = 512", "rounds = 1048576").replace("[1024, 8192]", "[1024]");
    let experiment = site.load(&text).unwrap();
    let Backend::Priced(run) = &experiment.backend else { panic!("not priced") };
    let prepared = Prepared::new(&experiment, run).unwrap();
    let heard = std::sync::Mutex::new(Vec::new());
    let seen = |rounds: u64| heard.lock().unwrap().push(rounds);
    let watched = prepared.with_source(0, |ready| {
        let plain = |p: &Prepared<'_>| p.candidates.iter().position(|c| c.kind == "plain").unwrap();
        ready.simulate_watched(plain(&prepared), Some(1024), 16, &seen).unwrap()
    });
    let heard = heard.into_inner().unwrap();
    let sum: u64 = heard.iter().sum();
    assert!(heard.len() >= 10, "{} words in {} rounds", heard.len(), watched.unwrap().result.rounds);
    assert!((900_000..1_200_000).contains(&sum), "{sum}");
}
