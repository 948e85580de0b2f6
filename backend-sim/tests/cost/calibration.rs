//! The calibration file: what it may say, and that a model prices by it.

use super::scene::Scene;
use treeline_core::log::Phase;
use treeline_sim::cost::{Calibration, Domain, FittedOp, HeldOut, Manifest, Origin, StepPoint, StepQuery, Tier};

fn op(name: &str, phase: Phase, rows: &[(u32, f64)]) -> FittedOp {
    FittedOp {
        name: name.into(),
        phase,
        calls: 61,
        rows: rows.to_vec(),
        us_per_expert: 0.0,
        us_per_token: 0.0,
        us_per_row_token: 0.0,
    }
}

/// A file of an engine whose step is known exactly, and two measured steps, one held out and 2 % slower.
fn calibration() -> Calibration {
    let manifest = Manifest {
        machine: "a test".into(),
        gpu: "B300".into(),
        ranks: 8,
        of_ranks: None,
        driver: "580".into(),
        engine: "treeline".into(),
        engine_commit: "0".into(),
        model: "kimi-k2.6".into(),
        drafter: Some("kimi-k2.6-dflash".into()),
        execution: "graph".into(),
        command: "treeline calibrate".into(),
        notes: vec![],
    };
    let ops = vec![
        op("products", Phase::Verify, &[(1, 3000.0), (65, 3640.0)]),
        FittedOp { us_per_expert: 10.0, ..op("experts", Phase::Verify, &[(1, 100.0)]) },
        FittedOp { us_per_token: 0.01, us_per_row_token: 0.001, ..op("attention", Phase::Verify, &[(1, 50.0)]) },
        op("draft", Phase::Draft, &[(8, 400.0)]),
        op("trees", Phase::Tree, &[(1, 20.0)]),
        op("loop", Phase::Host, &[(1, 200.0)]),
    ];
    let point = |round_us: f64, held_out| StepPoint {
        requests: 2,
        rows: 33,
        context_sum: 2000,
        draft_requests: 2,
        draft_rows: 16,
        draft_passes: 1,
        experts: Some(150.0),
        round_us,
        repeats: 9,
        held_out,
    };
    // 3000 + 320 + 100 + 1500 + 50 + max(20.31, 33) + 400 + 20 + 200.
    let round = 5623.0;
    Calibration {
        schema_version: 1,
        manifest,
        domain: Domain { requests: [1, 64], rows: [1, 512], context: [0, 8192], draft_rows: [8, 512] },
        ops,
        points: vec![point(round, false), point(round * 1.02, true)],
        held_out: HeldOut { points: 0, median: 0.0, p90: 0.0, bias: 0.0 },
        digest: String::new(),
    }
}

#[test]
fn a_file_survives_writing_and_reading_with_its_error_and_digest() {
    let text = calibration().to_json("c.json").unwrap();
    let read = Calibration::from_json(&text, "c.json").unwrap();
    assert_eq!(read.held_out.points, 1);
    assert!((read.held_out.median - (1.0 - 1.0 / 1.02)).abs() < 1e-9, "{:?}", read.held_out);
    assert!(read.digest.starts_with("sha256:") && read.digest == read.hash());
}

#[test]
fn a_model_prices_by_its_file() {
    let file = Calibration::from_json(&calibration().to_json("c.json").unwrap(), "c.json").unwrap();
    let scene = Scene::kimi_b300();
    let model = scene.build(Tier::Calibrated, Some(&file)).unwrap();
    let q = StepQuery { effective_rows: Some(20.0), ..StepQuery::block(2, 16, 1000, 8) };
    let price = model.price(&q);
    let experts = price.experts.unwrap();
    let (rows, us) = (f64::from(price.padded_rows), |ms: f64| ms * 1e3);
    let verify = 3000.0 + 640.0 * (rows - 1.0) / 64.0 + 100.0 + 10.0 * experts + 50.0 + 32.0_f64;
    assert!((us(price.phases.of(Phase::Verify)) - verify).abs() < 1e-6, "{price:?} {verify}");
    assert_eq!(us(price.phases.of(Phase::Draft)).round(), 400.0);
    assert_eq!(us(price.phases.of(Phase::Host)).round(), 200.0);
    assert!(price.in_domain && price.hbm_bytes > 1e10);
    assert!(!model.price(&StepQuery::block(65, 1, 100, 8)).in_domain, "more requests than were measured");
    assert!(!model.price(&StepQuery::block(1, 1, 9000, 8)).in_domain, "a longer context than was measured");
    assert!(!model.price(&StepQuery::block(60, 17, 100, 8)).in_domain, "more rows than were measured");
    let lines = model.breakdown(&q);
    let total: f64 = lines.iter().map(|l| l.us).sum();
    assert!((total - us(price.ms())).abs() < 1e-6);
    assert!(lines.iter().filter(|l| l.us > 0.0).all(|l| l.tier == Origin::Calibrated));
    assert!(model.describe().contains("held-out error over 1 steps"));
    let mut elsewhere = file.clone();
    elsewhere.manifest.ranks = 4;
    let error = scene.build(Tier::Calibrated, Some(&elsewhere)).unwrap_err().to_string();
    assert!(error.contains("measured on 4 ranks"), "{error}");
    let mut undrafted = calibration();
    undrafted.ops.retain(|o| o.phase != Phase::Draft);
    undrafted.domain.draft_rows = [0, 0];
    undrafted.points.iter_mut().for_each(|p| p.draft_requests = 0);
    let error = scene.build(Tier::Calibrated, Some(&undrafted)).unwrap_err().to_string();
    assert!(error.contains("draft ops"), "{error}");
}

/// Every way in which a file can be wrong is named.
#[test]
fn wrong_files_are_refused_by_name() {
    type Wrong = (&'static str, fn(&mut Calibration));
    let cases: [Wrong; 15] = [
        ("schema_version", |c| c.schema_version = 2),
        ("manifest.gpu", |c| c.manifest.gpu = " ".into()),
        ("manifest.ranks", |c| c.manifest.ranks = 0),
        ("manifest.of_ranks", |c| c.manifest.of_ranks = Some(8)),
        ("manifest.execution", |c| c.manifest.execution = "fast".into()),
        ("domain.rows", |c| c.domain.rows = [9, 1]),
        ("no op of phase", |c| c.ops.retain(|o| o.phase != Phase::Verify)),
        ("stands twice", |c| c.ops.push(c.ops[0].clone())),
        ("knots do not ascend", |c| c.ops[0].rows = vec![(2, 1.0), (1, 2.0)]),
        ("no number of at least 0", |c| c.ops[0].rows[0].1 = -1.0),
        ("outside of a pass", |c| c.ops[5].us_per_token = 1.0),
        ("contradict each other", |c| c.domain.draft_rows = [0, 0]),
        ("experts", |c| c.points[0].experts = None),
        ("outside of `domain`", |c| c.points[1].rows = 4000),
        ("held out", |c| c.points[1].held_out = false),
    ];
    for (word, spoil) in cases {
        let mut file = calibration();
        spoil(&mut file);
        let error = file.to_json("c.json").unwrap_err().to_string();
        assert!(error.contains(word) && error.contains("help: "), "{word}: {error}");
    }
    // A flattering error, and a changed number, are found out.
    let text = calibration().to_json("c.json").unwrap();
    let mut flattering: Calibration = serde_json::from_str(&text).unwrap();
    flattering.held_out.median = 0.001;
    flattering.digest = flattering.hash();
    let error = Calibration::from_json(&serde_json::to_string(&flattering).unwrap(), "c.json").unwrap_err();
    assert!(error.to_string().contains("its own points") || error.to_string().contains("own points give"), "{error}");
    let error = Calibration::from_json(&text.replace("3000.0", "3001.0"), "c.json").unwrap_err().to_string();
    assert!(error.contains("digest") || error.contains("held_out"), "{error}");
    assert!(Calibration::from_json("{}", "c.json").unwrap_err().to_string().contains("schema_version"));
}
