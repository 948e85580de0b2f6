//! Distinct experts: published figures, properties, fits side by side.

// `-- --nocapture` prints the figures of the docs.
#![allow(clippy::print_stdout)]

use std::path::Path;

use proptest::prelude::*;
use treeline_core::Tree;
use treeline_sim::experts::fit::{self, Fitted, PointSet};
use treeline_sim::experts::{Composition, Curve, Distinct, Experts, Novelty, Popularity, Prepared};
use treeline_sim::experts::{experts, shipped};

const PUBLIC: &str = include_str!("../profiles/experts/points/public-chains.csv");
const PROTOTYPE: &str = include_str!("../profiles/experts/points/prototype-pair.csv");
const MINI: &str = include_str!("../profiles/experts/points/mini-pair.csv");

fn set(text: &str) -> PointSet {
    PointSet::from_csv(text).unwrap()
}

fn novelty(name: &str) -> Novelty {
    match experts(name, Path::new(".")).unwrap().0 {
        Experts::Correlated { novelty, .. } => novelty,
        other => panic!("{name}: {other:?}"),
    }
}

fn table(fits: &[Fitted], set: &PointSet) -> String {
    let line = |f: &Fitted| {
        let parameters: Vec<String> = f.parameters.iter().map(|(n, v)| format!("{n} {v:.3}")).collect();
        format!("{:20} rms {:.3} max {:.3}  {}", f.form, f.rms(), f.largest(), parameters.join(", "))
    };
    let lines: Vec<String> = fits.iter().map(line).collect();
    format!("{}\n{}", set.source, lines.join("\n"))
}

fn form<'f>(fits: &'f [Fitted], name: &str) -> &'f Fitted {
    fits.iter().find(|f| f.form == name).unwrap()
}

#[test]
fn published_means_of_independent_rows_are_met() {
    for (rows, u) in [(8, 60.0), (16, 110.0), (17, 116.0), (33, 192.0), (65, 286.0)] {
        let experts = Experts::Uniform;
        assert_eq!(experts.distinct(384, 8, experts.effective_rows(1, rows)).round(), u, "{rows} rows");
    }
    // Measured on one H200 with independent routing: rows, experts.
    for (rows, u) in
        [(2, 15.8), (4, 30.6), (8, 59.8), (32, 186.0), (48, 246.0), (64, 284.0), (128, 358.0), (256, 382.0)]
    {
        let predicted = Experts::Uniform.distinct(384, 8, f64::from(rows));
        assert!((predicted / u - 1.0).abs() < 0.015, "{rows} rows: {predicted} against {u}");
    }
}

#[test]
fn two_public_chains_need_more_than_one_rho() {
    let set = set(PUBLIC);
    let fits = fit::all(&set, &novelty("correlated-mini-pair")).unwrap();
    let shown = table(&fits, &set);
    let power = form(&fits, "power, even");
    assert!((power.parameters[0].1 - 0.79).abs() < 0.01 && power.largest() < 0.025, "{shown}");
    assert!(form(&fits, "single ρ, even").largest() > 0.06, "{shown}");
    assert!(form(&fits, "novelty, even").largest() < 1e-4, "{shown}");
    assert!(form(&fits, "independent, even").largest() > 0.5, "{shown}");
}

#[test]
fn trees_of_two_pairs_are_met_by_novelty_alone() {
    for (text, names) in [(PROTOTYPE, "prototype"), (MINI, "mini pair")] {
        let set = set(text);
        let fits = fit::all(&set, &novelty("correlated-mini-pair")).unwrap();
        let shown = format!("{names}: {}", table(&fits, &set));
        // Errors of the points of one request, which are what the forms are about.
        let trees = |name: &str| {
            let one = form(&fits, name).errors.iter().zip(&set.points).filter(|(_, p)| p.requests == 1);
            one.fold(0.0_f64, |worst, (e, _)| worst.max(e.abs()))
        };
        assert!(trees("novelty, zipf") < 0.03, "{shown}");
        assert!(trees("power, zipf") > 0.12, "{shown}");
        assert!(trees("single ρ, zipf") > 0.3, "{shown}");
    }
}

/// Largest error of the novelty, power and single-ρ forms at more than `from` rows, fitted to the points with fewer.
fn carried_on(from: f64) -> [f64; 3] {
    let whole = set(MINI);
    let mut part = whole.clone();
    part.points.retain(|p| p.rows < from);
    assert!(part.points.len() < whole.points.len());
    let fits = fit::all(&part, &novelty("correlated-public-chains")).unwrap();
    ["novelty, zipf", "power, zipf", "single ρ, zipf"].map(|name| {
        let errors = fit::errors(&whole, &form(&fits, name).experts);
        let left_out = errors.iter().zip(&whole.points).filter(|(_, p)| p.rows > from);
        left_out.fold(0.0_f64, |worst, (e, _)| worst.max(e.abs()))
    })
}

#[test]
fn trees_that_were_left_out_of_the_fit_are_predicted_best_by_novelty() {
    for (from, most) in [(40.0, 0.05), (20.0, 0.15)] {
        let [novelty, power, rho] = carried_on(from);
        println!("from {from} rows on: novelty {novelty:.3}, power {power:.3}, single ρ {rho:.3}");
        assert!(novelty < most && novelty < power && power < rho, "{novelty}, {power}, {rho}");
    }
}

#[test]
fn shipped_parameters_are_those_of_the_fits() {
    let check = |name: &str, text: &str, wanted: &str| {
        let (shipped, sources) = experts(name, Path::new(".")).unwrap();
        let fits = fit::all(&set(text), &novelty("correlated-mini-pair")).unwrap();
        let fitted = &form(&fits, wanted).experts;
        let (Experts::Correlated { novelty: a, popularity: p }, Experts::Correlated { novelty: b, popularity: q }) =
            (&shipped, fitted)
        else {
            panic!("{shipped:?}");
        };
        let pairs = [
            (a.chain, b.chain),
            (a.chain_decay, b.chain_decay),
            (a.sibling, b.sibling),
            (a.sibling_decay, b.sibling_decay),
            (a.repeat, b.repeat),
        ];
        assert!(pairs.iter().all(|(a, b)| (a - b).abs() < 2e-3), "{name}: {pairs:?}");
        if let (Popularity::Zipf { exponent: a }, Popularity::Zipf { exponent: b }) = (p, q) {
            assert!((a - b).abs() < 2e-3, "{a} against {b}");
        } else {
            assert_eq!(p, q);
        }
        assert!(sources.iter().all(|o| !o.source.is_empty()));
    };
    check("correlated-mini-pair", MINI, "novelty, zipf");
    check("correlated-public-chains", PUBLIC, "novelty, even");
}

#[test]
fn typical_trees_stand_in_for_real_ones() {
    let (model, _) = experts("correlated-mini-pair", Path::new(".")).unwrap();
    for point in set(MINI).points.iter().filter(|p| p.composition.is_some()) {
        let real = model.distinct(128, 4, model.effective_of(point.rows, point.composition.as_ref()));
        let typical = model.distinct(128, 4, model.effective_of(point.rows, None));
        assert!((typical / real - 1.0).abs() < 0.09, "{}: {typical} for {real}", point.label);
    }
}

#[test]
fn rows_of_a_forest_count_node_by_node() {
    let (model, _) = experts("correlated-mini-pair", Path::new(".")).unwrap();
    let n = novelty("correlated-mini-pair");
    // A chain of two, and two siblings whose children are the same token.
    let chain = Tree::from_arrays(&[1, 2, 3], &[0, 0, 1], &[0, 0, 0], &[0.0; 3]).unwrap();
    let wide = Tree::from_arrays(&[1, 2, 4, 3, 3], &[0, 0, 0, 1, 2], &[0, 0, 1, 0, 0], &[0.0; 5]).unwrap();
    let second = n.chain * 2.0_f64.powf(-n.chain_decay);
    let expect = (1.0 + n.chain + second) + (1.0 + n.chain + second + n.sibling + n.repeat);
    assert!((model.effective_rows_of([&chain, &wide].into_iter()) - expect).abs() < 1e-12);
    assert_eq!(Experts::Uniform.effective_rows_of([&chain, &wide].into_iter()), 8.0);
}

#[test]
fn wrong_files_name_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let good = include_str!("../profiles/experts/correlated-mini-pair.toml");
    let check = |from: &str, to: &str, expect: &str| {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "{from}");
        std::fs::write(folder.path().join("x.toml"), text).unwrap();
        let e = experts("./x.toml", folder.path()).unwrap_err().to_string();
        assert!(e.contains(expect), "{e}");
    };
    check("chain = { value = 0.920", "chain = { value = 1.5", "`novelty.chain`: is 1.5; it must be from 0 to 1");
    check("\"zipf\"", "\"zip\"", "x.toml:7: `popularity.kind`: \"zip\" is not known");
    check("kind = \"correlated\"", "kind = \"uniform\"", "a uniform router has none");
    check("spine = {", "spin = {", "`novelty.spine`: missing");
    check("repeat = { value = 0.052", "repeat = { value = nan", "its value must be a finite number");
    let unknown = experts("corelated", folder.path()).unwrap_err().to_string();
    assert!(unknown.contains(&shipped().join(", ")) && unknown.contains("./corelated.toml"), "{unknown}");
}

#[test]
fn measured_points_of_a_file_are_gone_through() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("u.csv"), PUBLIC).unwrap();
    let text = "name = \"mine\"\nkind = \"measured\"\npoints = \"u.csv\"\n";
    std::fs::write(folder.path().join("mine.toml"), text).unwrap();
    let (model, sources) = experts("mine.toml", folder.path()).unwrap();
    assert!((model.distinct(256, 8, model.effective_rows(1, 8)) - 39.4).abs() < 1e-6);
    assert!(sources.of("points").is_some_and(|s| s.contains("256 experts")));
}

fn models() -> impl Strategy<Value = Experts> {
    let popularity = prop_oneof![
        Just(Popularity::Even),
        (0.0..2.0_f64).prop_map(|exponent| Popularity::Zipf { exponent }),
        proptest::collection::vec(0.01..10.0_f64, 64).prop_map(Popularity::List),
    ];
    let novelty = (0.0..=1.0_f64, 0.0..2.0_f64, 0.0..=1.0_f64, 0.0..2.0_f64, 0.0..=1.0_f64, 1..16_u32).prop_map(
        |(chain, chain_decay, sibling, sibling_decay, repeat, spine)| Novelty {
            chain,
            chain_decay,
            sibling,
            sibling_decay,
            repeat,
            spine,
        },
    );
    let curve = (2.0..64.0_f64, 1.0..1.99_f64).prop_map(|(rows, u)| {
        let even = Distinct::new(&Popularity::Even, 64, 4);
        let distinct = even.at(rows.powf(u - 1.0));
        let point =
            treeline_sim::experts::Point { label: String::new(), requests: 1, rows, composition: None, distinct };
        Curve::new(&[point], &even).unwrap()
    });
    (popularity, novelty, curve, 0.0..=1.0_f64, 0..6).prop_map(|(popularity, novelty, curve, x, kind)| match kind {
        0 => Experts::Uniform,
        1 => Experts::Skewed { popularity },
        2 => Experts::Power { popularity, exponent: x },
        3 => Experts::Shared { popularity, rho: x },
        4 => Experts::Correlated { popularity, novelty },
        _ => Experts::Measured { popularity, curve },
    })
}

proptest! {
    #[test]
    fn more_rows_touch_more_experts_but_never_more_than_they_choose(
        model in models(),
        requests in 1..40_u32,
        rows in 1..70_u32,
    ) {
        prop_assert!(model.check(64, 4).is_ok());
        let u = |rows: u32| model.distinct(64, 4, model.effective_rows(requests, rows));
        let (now, next) = (u(requests * rows), u(requests * rows + 1));
        prop_assert!(next >= now - 1e-9, "{now} then {next}");
        prop_assert!(now <= 64.0_f64.min(4.0 * f64::from(requests * rows)) + 1e-9);
        // A row alone touches exactly its choice.
        prop_assert!((model.distinct(64, 4, model.effective_rows(1, 1)) - 4.0).abs() < 1e-9);
        // Compiled for speed, the same.
        let prepared = Prepared::new(&model, 64, 4, 32);
        let exact = u(requests * rows);
        let fast = prepared.distinct(prepared.effective_rows(requests, requests * rows));
        prop_assert!((fast - exact).abs() < 1e-6 * exact.max(1.0), "{fast} against {exact}");
    }
}

#[test]
fn compositions_of_whole_nodes_only() {
    let tree = Composition::typical(64.0, 7);
    assert!((tree.nodes() - 64.0).abs() < 1e-9 && tree.chain == 7.0 && tree.repeats > 20.0 && tree.siblings > 30.0);
}
