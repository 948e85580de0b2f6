//! Whole runs through the core's round protocol: trees change the speed, never the text.

mod common;

use common::{decode, pairs, plain, requests};
use treeline_core::testing::Shape;
use treeline_core::{Law, Sampling};
use treeline_cpu::EngineSettings;

/// A chain, siblings only, a bushy tree, a ragged one.
fn shapes() -> Vec<(&'static str, Shape)> {
    vec![
        ("chain of 5", Shape::chain(5)),
        ("six siblings", Shape::widths(&[6])),
        ("3 x 3 x 2", Shape::widths(&[3, 3, 2])),
        ("ragged", Shape::new(&[0, 0, 0, 1, 2, 4, 6, 6, 3], &[0, 1, 2, 0, 0, 0, 0, 1, 1])),
    ]
}

fn compare(law: &Law<'_>, sampling: Sampling) {
    let requests = requests(12, 40, sampling);
    for (name, pair) in pairs() {
        let want = plain(&pair, &requests, law);
        for (shape, mut policy) in shapes() {
            for (slots, chunk) in [(1, 7), (4, 64), (12, 16)] {
                let mut engine = pair.engine(EngineSettings { slots, context: 120, chunk }).unwrap();
                let got = {
                    let nodes = policy.nodes();
                    decode(&mut engine, &mut policy, &requests, law, nodes)
                };
                assert_eq!(got, want, "{name}, {shape}, {slots} at once");
            }
        }
    }
}

/// Public fault 24: text that changes with the number of verify rows.
#[test]
fn fault_24_greedy_text_under_every_tree_equals_plain_decoding() {
    compare(&Law::Greedy, Sampling::GREEDY);
}

#[test]
fn sampled_text_under_every_tree_equals_plain_decoding() {
    compare(&Law::SampleMatch { seed: 9 }, Sampling::at(0.8));
}
