//! Logits of tiny random checkpoints of every family against `transformers` in float64 (training/parity).

mod common;

use common::{Expected, TARGETS, model, relative_error};
use treeline_cpu::Scorer;

const TOLERANCE: f32 = 1e-4;

#[test]
fn plain_prefixes_match_the_reference() {
    for name in TARGETS {
        let expected = Expected::read(name);
        let mut scorer = Scorer::new(model(name));
        let got = scorer.extend(&expected.ids("plain.tokens"));
        let want = expected.floats("plain.logits");
        for (i, (got, want)) in got.rows().into_iter().zip(want.chunks_exact(got.ncols())).enumerate() {
            let error = relative_error(&got.to_vec(), want);
            assert!(error <= TOLERANCE, "{name}, row {i}: relative error {error:e}");
        }
    }
}

#[test]
fn trees_match_the_reference() {
    for name in TARGETS {
        let expected = Expected::read(name);
        let model = model(name);
        let mut trees = 0;
        while expected.has(&format!("tree{trees}.prefix")) {
            let of = |part: &str| format!("tree{trees}.{part}");
            let mut scorer = Scorer::new(model.clone());
            scorer.extend(&expected.ids(&of("prefix")));
            let got = scorer.tree(&expected.ids(&of("tokens")), &expected.ids(&of("parents")));
            let want = expected.floats(&of("logits"));
            for (i, (got, want)) in got.rows().into_iter().zip(want.chunks_exact(got.ncols())).enumerate() {
                let error = relative_error(&got.to_vec(), want);
                assert!(error <= TOLERANCE, "{name}, tree {trees}, row {i}: relative error {error:e}");
            }
            trees += 1;
        }
        assert_eq!(trees, 4, "{name}");
    }
}
