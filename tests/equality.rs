//! Lossless on a real model: whatever the policy, the drafter and the batch, the text is that of plain decoding.

use crate::mini::{Case, cases, engine, plain, requests, run_case};
use rayon::prelude::*;
use treeline_core::{Law, Request, Response};

const TOKENS: u32 = 48;

/// Runs `case` over `chosen` and names the first response that differs from `expected`, and how many drafts were accepted.
fn differences(case: &Case, chosen: &[Request], expected: &[Response], law: &Law<'_>) -> (Vec<String>, u32) {
    let responses = run_case(&mut engine(case.drafter, 4), case, chosen, law, 4, &mut |_| {});
    let mut accepted = 0;
    let mut bad = Vec::new();
    for response in &responses {
        let plain = expected.iter().find(|p| p.request == response.request).unwrap();
        accepted += response.decoded() - response.steps;
        if response.tokens != plain.tokens || response.end != plain.end {
            let at = response.tokens.iter().zip(&plain.tokens).position(|(a, b)| a != b);
            bad.push(format!("{} {}: request {} differs at token {at:?}", case.kind, case.budget, response.request));
        }
    }
    (bad, accepted)
}

fn check(jobs: Vec<(Case, Vec<Request>)>, expected: &[Response], law: &Law<'_>) {
    let results: Vec<_> =
        jobs.par_iter().map(|(case, chosen)| (case, differences(case, chosen, expected, law))).collect();
    for (case, (bad, accepted)) in results {
        assert!(bad.is_empty(), "{}", bad.join("\n"));
        assert!(accepted > 0, "{} accepted nothing: the equality would prove nothing", case.kind);
    }
}

#[test]
fn greedy_text_is_that_of_plain_decoding_under_every_policy() {
    let all = requests(200, TOKENS, 0.0);
    let law = Law::Greedy;
    let expected: Vec<Response> = all.par_chunks(50).flat_map_iter(|chunk| plain(chunk, &law)).collect();
    assert!(expected.iter().all(|r| r.tokens.len() == TOKENS as usize));
    let cases = cases();
    let jobs = cases
        .iter()
        .enumerate()
        .map(|(c, case)| {
            // The first 20 under every policy, the others in rotation.
            let chosen = all.iter().enumerate().filter(|(i, _)| *i < 20 || i % cases.len() == c);
            (case.clone(), chosen.map(|(_, r)| r.clone()).collect())
        })
        .collect();
    check(jobs, &expected, &law);
}

#[test]
fn sampled_text_is_that_of_plain_sampling_under_every_policy() {
    let all = requests(10, TOKENS, 0.7);
    let law = Law::SampleMatch { seed: 17 };
    let expected = plain(&all, &law);
    check(cases().into_iter().map(|case| (case, all.clone())).collect(), &expected, &law);
}

/// Negative control: another seed gives another text, so the comparison can fail.
#[test]
fn another_seed_gives_another_text() {
    let all = requests(3, TOKENS, 0.7);
    let a = plain(&all, &Law::SampleMatch { seed: 17 });
    let b = plain(&all, &Law::SampleMatch { seed: 18 });
    assert!(a.iter().zip(&b).all(|(a, b)| a.tokens != b.tokens));
}
