//! Errors of rates, positions that nothing counted, and the drafter that a process is of.

use super::kimi;
use std::path::Path;
use treeline_sim::accept::fit::{from_counts, from_curve};
use treeline_sim::accept::{Process, ProcessError, process};
use treeline_sim::profile::{DrafterKind, drafter};

/// What counting longer would change: one rate at a time, by 1.96 standard errors, and never to 0 or 1.
#[test]
fn rates_move_by_their_standard_errors() {
    let mut p = kimi();
    assert!(p.rate_variants().is_empty(), "published without errors");
    p.conditional.errors = vec![0.01, 0.0, 0.3, 0.3, 0.3, 0.3, 0.3];
    let moved = p.rate_variants();
    assert_eq!(moved.len(), 12, "position 2 is exact");
    let keys: Vec<&str> = moved.iter().map(|v| v.parameter.as_str()).collect();
    assert_eq!(&keys[..4], ["conditional.1", "conditional.1", "conditional.3", "conditional.3"]);
    let rate = |v: usize, d: usize| moved[v].process.conditional.values[d];
    assert!((rate(0, 0) - (0.816 - 0.0196)).abs() < 1e-12 && (rate(1, 0) - (0.816 + 0.0196)).abs() < 1e-12);
    assert_eq!((rate(0, 1), rate(0, 2)), (0.72, 0.652), "the others stay");
    assert!((rate(2, 2) - 0.0652).abs() < 1e-9 && rate(3, 2) < 1.0 && rate(3, 2) > 0.9, "nine tenths of the way");
    assert!(moved.iter().all(|v| v.process.check().is_ok()));
    // A move to another level says nothing of the errors that it had.
    assert!(p.to_tau(4.0, 7).unwrap().rate_variants().is_empty());
}

#[test]
fn errors_of_rates_are_checked() {
    for (errors, says) in [
        (vec![0.01; 6], "6 standard errors of 7 rates"),
        (vec![0.01, 0.01, -0.1, 0.01, 0.01, 0.01, 0.01], "-0.1 at position 3"),
        (vec![0.01, 0.51, 0.1, 0.01, 0.01, 0.01, 0.01], "0.51 at position 2"),
        (vec![f64::NAN; 7], "NaN at position 1"),
        (vec![f64::INFINITY; 7], "inf at position 1"),
    ] {
        let mut p = kimi();
        p.conditional.errors = errors;
        let said = p.check().unwrap_err().to_string();
        assert!(said.contains("`conditional.errors`") && said.contains(says), "{said}");
        let text = p.to_toml().unwrap();
        assert!(Process::from_toml(&text, "mine.toml").is_err(), "from a file as well");
    }
}

/// Zero and full counts have an error; positions that no round reached keep the block as deep as it is.
#[test]
fn late_positions_without_a_count_get_an_estimate() {
    let rates = from_counts(1000, &[800, 40, 0, 0, 0], "x").unwrap();
    assert_eq!(&rates.values[..2], [0.8, 0.05]);
    // Jeffreys: (0 + ½) / (40 + 1), and nothing known of what was never tried.
    assert!((rates.values[2] - 0.5 / 41.0).abs() < 1e-12 && rates.values[3..] == [0.5, 0.5], "{:?}", rates.values);
    assert!(rates.errors[2] > 0.01 && rates.errors[2] < 0.02, "{:?}", rates.errors);
    assert!((rates.errors[3] - 0.125f64.sqrt()).abs() < 1e-12);
    assert!(rates.source.contains("position 3 was never accepted in 40 rounds"), "{}", rates.source);
    assert!(rates.source.contains("from 4 on"), "{}", rates.source);
    let all = from_counts(9, &[9], "x").unwrap();
    assert!((all.values[0] - 0.95).abs() < 1e-12 && all.errors[0] > 0.05);
    assert!(from_counts(0, &[0, 0], "x").unwrap_err().to_string().contains("no round"));
}

/// A process is of one kind of drafter and, for a block, of one size; steps may be fewer than were counted.
#[test]
fn a_process_is_priced_beside_its_own_kind_of_drafter() {
    let here = Path::new(".");
    let (steps, block) = (process("kimi-k2.5-eagle3-thinking", here).unwrap(), kimi());
    let (eagle, dflash) = (drafter("kimi-k2.5-eagle3", here).unwrap(), drafter("kimi-k2.6-dflash", here).unwrap());
    assert_eq!(block.for_drafter(&dflash).unwrap(), block);
    let cut = steps.for_drafter(&eagle).unwrap();
    assert_eq!((cut.depth(), cut.conditional.errors.len()), (7, 7));
    assert_eq!(cut.conditional.values, steps.conditional.values[..7]);
    assert!((cut.tau(7) - 3.71).abs() < 1e-4, "the published seventh point: {}", cut.tau(7));
    assert!(cut.about.starts_with("the first 7 of 8 positions"), "{}", cut.about);
    cut.check().unwrap();

    let mut deeper = eagle.clone();
    deeper.kind = DrafterKind::Eagle { steps: 9 };
    let mut wider = dflash.clone();
    wider.kind = DrafterKind::Dflash { block: 16 };
    for (process, drafter, why, help) in [
        (&block, &eagle, "goes step by step", "kimi-k2.5-eagle3-thinking"),
        (&steps, &dflash, "proposes a block at once", "kimi-k2.6-dspark"),
        (&steps, &deeper, "rates of 8 positions, the drafter takes 9 steps", "lower `steps` to 8"),
        (&block, &wider, "7 levels, the drafter's 15", "`block` = 8"),
    ] {
        let refused = process.for_drafter(drafter).unwrap_err();
        assert!(matches!(refused, ProcessError::Drafter { .. }));
        let said = refused.to_string();
        assert!(said.contains(why) && said.contains(help) && said.contains(&process.name), "{said}");
    }
}

/// Errors of rates from a curve are those of its rounded figures, each of which moves up to three differences.
#[test]
fn errors_of_a_curve_follow_every_figure() {
    let curve = [1.83, 2.43, 2.88, 3.24, 3.46, 3.62, 3.71];
    let points = |taus: &[f64]| -> Vec<(u32, f64)> { (1..).zip(taus.iter().copied()).collect() };
    let rates = |taus: &[f64]| from_curve(&points(taus), 0.01, "test").unwrap();
    let own = rates(&curve);
    let sigma = 0.01 / 12f64.sqrt();
    for (d, error) in own.errors.iter().enumerate() {
        let slope = |j: usize| {
            let (mut up, h) = (curve, 1e-6);
            up[j] += h;
            (rates(&up).values[d] - own.values[d]) / h
        };
        let numeric = sigma * (0..curve.len()).map(|j| slope(j).powi(2)).sum::<f64>().sqrt();
        assert!((error / numeric - 1.0).abs() < 1e-3, "rate {d}: {error}, by differences {numeric}");
    }
}
