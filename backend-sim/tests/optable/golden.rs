//! Figures that are known from elsewhere.

use super::{allreduce, document, kimi};
use treeline_sim::optable::Routing;

#[test]
fn all_reduce_on_eight_b300() {
    for (engine, version, elements, us) in
        [("vllm", "0.24.0", 65_536.0, 9.4), ("vllm", "0.24.0", 131_072.0, 26.0), ("sglang", "0.5.14", 131_072.0, 8.6)]
    {
        let looked = allreduce("b300", engine, version, 8).us(2.0 * elements);
        assert!(looked.inside && (looked.us - us).abs() < 0.05, "{engine} {elements}: {looked:?}, known {us}");
    }
}

#[test]
fn vllm_switches_at_256_kib_on_eight_ranks_and_at_512_kib_on_four() {
    for system in ["h200", "b200", "b300"] {
        assert_eq!(allreduce(system, "vllm", "0.24.0", 8).switches()[0], 262_144.0, "{system}");
        assert_eq!(allreduce(system, "vllm", "0.24.0", 4).switches()[0], 524_288.0, "{system}");
        assert!(!allreduce(system, "vllm", "0.24.0", 2).switches().contains(&262_144.0), "{system}");
    }
    // 18 rows of Kimi are under the switch, 19 above it: 1.9 ms over the 122 all-reduces of a step.
    let table = allreduce("b300", "vllm", "0.24.0", 8);
    let rows = |rows: f64| table.us(2.0 * 7168.0 * rows).us;
    assert!((rows(18.0) - 11.0).abs() < 0.2 && (rows(19.0) - 26.0).abs() < 0.2, "{} {}", rows(18.0), rows(19.0));
    let step_ms = 0.122 * (rows(19.0) - rows(18.0));
    assert!((step_ms - 1.9).abs() < 0.1, "{step_ms}");
}

#[test]
fn the_int4_layer_of_kimi() {
    let b300 = kimi("b300", "vllm", "0.24.0");
    assert!((b300.balanced(8.0).us - 95.0).abs() < 1.0);
    for (rows, us) in [(48.0, 216.0), (64.0, 275.0), (128.0, 336.0), (256.0, 450.0), (320.0, 515.0)] {
        let looked = b300.routed(Routing::PowerLaw101, rows).unwrap();
        assert!(looked.inside && (looked.us - us).abs() < 0.6, "{rows} rows: {looked:?}, known {us}");
    }
    assert!((kimi("h200", "vllm", "0.24.0").balanced(48.0).us - 466.0).abs() < 0.5);
}

#[test]
fn t0_and_c_of_the_int4_layer() {
    // Ranges as they are known, open by half of their last digit.
    for (system, t0, c) in [("b300", 25.5..=35.5, 0.795..=0.925), ("h200", 22.5..=34.5, 1.065..=1.135)] {
        for (engine, version) in [("vllm", "0.24.0"), ("sglang", "0.5.14")] {
            let fit = kimi(system, engine, version).fit();
            assert!(t0.contains(&fit.t0) && c.contains(&fit.c), "{system} {engine}: t0 {} c {}", fit.t0, fit.c);
            assert!(fit.worst < 0.15, "{system} {engine}: {}", fit.worst);
            assert_eq!((fit.saturation, fit.h(48.0), fit.h(7.0)), (48.0, 0.0, 0.0));
            assert!(fit.h(1024.0) > fit.h(128.0) && fit.h(128.0) >= 0.0);
        }
    }
}

/// Measured on one H200: vLLM 0.24.0's Marlin INT4 layer, one rank of 8, independent routing, CUDA graph: rows, distinct experts, µs.
const MEASURED: [(f64, f64, f64); 10] = [
    (1.0, 8.0, 30.4),
    (2.0, 15.8, 39.1),
    (4.0, 30.6, 57.2),
    (8.0, 59.8, 91.9),
    (16.0, 109.0, 148.0),
    (32.0, 186.0, 235.0),
    (48.0, 246.0, 304.0),
    (64.0, 284.0, 344.0),
    (128.0, 358.0, 437.0),
    (256.0, 382.0, 510.0),
];

/// The fit against another machine of the same kind, other routing, other measurement. The table is in docs/optables.md.
#[test]
fn the_fit_meets_an_independent_measurement_on_one_h200() {
    let fit = kimi("h200", "vllm", "0.24.0").fit();
    let doc = document("optables.md");
    let mut errors = Vec::new();
    let mut missing = Vec::new();
    for (rows, distinct, us) in MEASURED {
        let model = fit.us(rows, distinct);
        assert!(model.inside);
        let error = model.us / us - 1.0;
        errors.push(error.abs());
        let line = format!("| {rows} | {distinct} | {us} | {:.1} | {:+.1} % |", model.us, 100.0 * error);
        println!("{line}");
        if !doc.contains(&line) {
            missing.push(line);
        }
    }
    errors.sort_by(f64::total_cmp);
    println!("median {:.1} %, worst {:.1} %", 50.0 * (errors[4] + errors[5]), 100.0 * errors[9]);

    assert!(0.5 * (errors[4] + errors[5]) < 0.1 && errors[9] < 0.5, "{errors:?}");
    assert!(missing.is_empty(), "docs/optables.md lacks\n{}", missing.join("\n"));
}
