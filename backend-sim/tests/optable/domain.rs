//! Inside the measured points look-ups pass through them; outside they are flagged; a switch is never crossed.

use super::{allreduce, from, kimi};
use proptest::prelude::*;
use treeline_sim::optable::*;

fn same(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-9
}

#[test]
fn every_measured_point_is_returned_as_it_is() {
    let tables = OpTables::shipped();
    let mut points = 0;
    let mut meet = |looked: Looked, us: f64| {
        assert!(looked.inside && same(looked.us, us), "{looked:?} {us}");
        points += 1;
    };
    for t in tables.moe_tables() {
        Routing::ALL
            .iter()
            .for_each(|&r| t.points(r).into_iter().for_each(|(x, us)| meet(t.routed(r, x).unwrap(), us)));
    }
    tables.allreduce_tables().iter().for_each(|t| t.points().into_iter().for_each(|(x, us)| meet(t.us(x), us)));
    for t in [MlaPart::Kernel, MlaPart::Module].into_iter().flat_map(|p| tables.mla_tables(p)) {
        t.cells().into_iter().for_each(|(b, s, us)| meet(t.us(b, s), us));
    }
    tables.mla_bmm_tables().iter().for_each(|t| t.points().into_iter().for_each(|(x, us)| meet(t.us(x), us)));
    tables.gemm_tables().iter().for_each(|t| t.cells().into_iter().for_each(|(m, n, k, us)| meet(t.us(m, n, k), us)));
    tables.attention_tables().iter().for_each(|t| t.cells().into_iter().for_each(|(b, s, us)| meet(t.us(b, s), us)));
    let summed: usize = tables.summaries().iter().map(|s| s.points).sum();
    assert_eq!(points, summed, "the summaries count the same points");
}

#[test]
fn outside_is_flagged_and_goes_on_growing() {
    let moe = kimi("b300", "vllm", "0.24.0");
    for (rows, distinct) in [(0.5, 8.0), (1e6, 384.0), (8.0, 385.0), (8.0, 0.0), (f64::NAN, 8.0)] {
        assert!(!moe.fit().us(rows, distinct).inside, "{rows} {distinct}");
    }
    let ar = allreduce("b300", "vllm", "0.24.0", 8);
    let (low, high) = ar.bytes();
    assert!(!ar.us(low / 2.0).inside && !ar.us(high * 2.0).inside && ar.us(high * 2.0).us > ar.us(high).us);
    let mla = MlaKey { from: from("b300", "sglang", "0.5.14"), part: MlaPart::Kernel, kv: "bfloat16", heads: 8 };
    let mla = OpTables::shipped().mla(&mla).unwrap();
    // A batch of 1024 at 131,072 tokens was never measured: the table is a triangle.
    let corner = mla.us(1024.0, 131_072.0);
    assert!(!corner.inside && corner.us > mla.us(64.0, 131_072.0).us);
    assert!(!mla.us(2048.0, 64.0).inside && same(mla.us(2048.0, 64.0).us, 2.0 * mla.us(1024.0, 64.0).us));
    let long = mla.us(1.0, 262_144.0);
    assert!(!long.inside && long.us > mla.us(1.0, 131_072.0).us);
}

#[test]
fn a_vocabulary_beyond_the_grid_streams_its_weights() {
    for system in ["h200", "b200", "b300"] {
        let gemm =
            OpTables::shipped().gemm(&GemmKey { from: from(system, "vllm", "0.24.0"), dtype: "bfloat16" }).unwrap();
        // Qwen3-8B's head on one GPU.
        let head = gemm.us(8.0, 151_936.0, 4096.0);
        let bytes_s = 2.0 * 151_936.0 * 4096.0 / (head.us * 1e-6);
        assert!(head.inside && (3e12..8e12).contains(&bytes_s), "{system}: {head:?} {bytes_s:e}");
        assert!(
            !gemm.us(8.0, 1e6, 4096.0).inside
                && !gemm.us(8.0, 4096.0, 1e6).inside
                && !gemm.us(8.0, 64.0, 4096.0).inside
        );
    }
}

/// A file with its times from the column of `at` on multiplied by ten.
fn slower_from(text: &str, at: &str) -> String {
    let mut from = usize::MAX;
    let mut out = String::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split(',').collect();
        if line.starts_with("system") {
            from = cells.iter().position(|c| *c == at).unwrap();
        }
        let slower = |(i, cell): (usize, &&str)| match cell.parse::<f64>() {
            Ok(us) if i >= from && !line.starts_with("system") => format!("{}", 10.0 * us),
            _ => (*cell).to_owned(),
        };
        out.push_str(&cells.iter().enumerate().map(slower).collect::<Vec<_>>().join(","));
        out.push('\n');
    }
    out
}

#[test]
fn no_look_up_below_a_switch_depends_on_what_lies_above_it() {
    let mut texts = SHIPPED.map(String::from);
    texts[1] = slower_from(SHIPPED[1], "262144");
    let changed = OpTables::parse(&texts).unwrap();
    let from = from("b300", "vllm", "0.24.0");
    let key = ArKey { from, op: Collective::AllReduce, launch: Launch::Graph, ranks: 8 };
    let (old, new) = (allreduce("b300", "vllm", "0.24.0", 8), changed.allreduce(&key).unwrap());
    for bytes in (256..262_144).step_by(509).map(f64::from) {
        assert_eq!(old.us(bytes), new.us(bytes), "{bytes}");
    }
    for bytes in (262_144..4_194_304).step_by(50_021).map(f64::from) {
        assert!(same(10.0 * old.us(bytes).us, new.us(bytes).us), "{bytes}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn between_neighbours_a_time_lies_between_theirs(pick in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), share in 0.0..1.0f64) {
        let tables = OpTables::shipped().moe_tables();
        let table = pick.get(tables);
        let points = table.points(Routing::Balanced);
        let i = at.index(points.len() - 1);
        let x = points[i].0.powf(1.0 - share) * points[i + 1].0.powf(share);
        let looked = table.balanced(x);
        let (low, high) = (points[i].1.min(points[i + 1].1), points[i].1.max(points[i + 1].1));
        prop_assert!(looked.inside && looked.us >= low * (1.0 - 1e-9) && looked.us <= high * (1.0 + 1e-9));
    }

    #[test]
    fn more_experts_take_longer(pick in any::<prop::sample::Index>(), rows in 1.0..16384.0f64, u in 1.0..127.0f64) {
        let fit = pick.get(OpTables::shipped().moe_tables()).fit();
        let (less, more) = (fit.us(rows, u), fit.us(rows, u + 1.0));
        prop_assert!(less.inside && more.inside && more.us > less.us && less.us > 0.0);
    }

    #[test]
    fn every_query_has_a_positive_time(pick in any::<prop::sample::Index>(), a in -2.0..8.0f64, b in -2.0..8.0f64, c in -2.0..8.0f64) {
        let (a, b, c) = (10f64.powf(a), 10f64.powf(b), 10f64.powf(c));
        let t = OpTables::shipped();
        let fine = |looked: Looked| looked.us.is_finite() && looked.us > 0.0;
        prop_assert!(fine(pick.get(t.allreduce_tables()).us(a)));
        prop_assert!(fine(pick.get(t.mla_tables(MlaPart::Kernel)).us(a, b)) && fine(pick.get(t.mla_tables(MlaPart::Module)).us(a, b)));
        prop_assert!(fine(pick.get(t.mla_bmm_tables()).us(a)) && fine(pick.get(t.attention_tables()).us(a, b)));
        prop_assert!(fine(pick.get(t.gemm_tables()).us(a, b, c)));
        prop_assert!(fine(pick.get(t.moe_tables()).balanced(a)));
    }

    #[test]
    fn a_plane_lies_between_its_corners(pick in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), v in 0.0..1.0f64, w in 0.0..1.0f64) {
        let table = pick.get(OpTables::shipped().attention_tables());
        let (batches, contexts) = table.axes();
        let i = at.index(batches.len() - 1);
        let j = at.index(contexts.len() - 1);
        let between = |axis: &[f64], i: usize, share: f64| axis[i].powf(1.0 - share) * axis[i + 1].powf(share);
        let looked = table.us(between(batches, i, v), between(contexts, j, w));
        let corners = [(i, j), (i, j + 1), (i + 1, j), (i + 1, j + 1)].map(|(i, j)| table.us(batches[i], contexts[j]));
        let low = corners.iter().map(|c| c.us).fold(f64::INFINITY, f64::min);
        let high = corners.iter().map(|c| c.us).fold(0.0, f64::max);
        prop_assert!(looked.us >= low * (1.0 - 1e-9) && looked.us <= high * (1.0 + 1e-9));
        prop_assert!(!corners.iter().all(|c| c.inside) || looked.inside);
        prop_assert!(corners[..3].iter().all(|c| c.inside) || !looked.inside || v == 0.0 || w == 0.0);
    }
}
