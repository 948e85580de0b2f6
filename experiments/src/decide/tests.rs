//! Answers of made-up settings.

use super::*;
use crate::results::{Choice, ErrorParts};

fn candidate(policy: &str, budget: u32, tau: f64, ms: f64) -> Candidate {
    let choice = Choice { policy: policy.to_owned(), budget };
    // Requests differ by a factor that all candidates share.
    let requests = (0..20).map(|i| 1.0 + f64::from(i * 7 % 5) / 10.0).map(|f| (tau * f * 10.0, ms * 10.0)).collect();
    Candidate { choice, fixed: true, tau, rows: f64::from(budget + 1), requests }
}

fn setting() -> Setting {
    let variant = |key: &str, part, rates: &[f64]| Variant {
        key: key.to_owned(),
        input: key.to_owned(),
        change: "+10 %".to_owned(),
        part,
        rates: rates.to_vec(),
    };
    Setting {
        acceptance: "a".to_owned(),
        context: 1024,
        concurrency: 8,
        candidates: vec![
            candidate("plain", 0, 1.0, 10.0),
            candidate("best-first", 8, 3.0, 15.0),
            candidate("best-first", 16, 3.6, 20.0),
        ],
        plain: Some(0),
        reference: Some(2),
        variants: vec![
            variant("moe", Part::Transfer, &[0.1, 0.19, 0.18]),
            variant("moe", Part::Transfer, &[0.1, 0.21, 0.18]),
            variant("siblings", Part::Model, &[0.1, 0.20, 0.25]),
            variant("noise", Part::Model, &[0.1, 0.20, 0.2001]),
        ],
        gaps: Vec::new(),
    }
}

#[test]
fn the_answer_names_what_is_best_and_what_would_change_it() {
    let a = answer(&setting(), &Resamples::new(20, 500, 1)).unwrap();
    assert_eq!((a.best.policy.as_str(), a.best.budget), ("best-first", 8));
    assert!((a.speedup - 2.0).abs() < 1e-12 && (a.over_reference.unwrap() - 0.2 / 0.18).abs() < 1e-12);
    assert_eq!((a.runner_up.unwrap().budget, a.p_best, a.best_fixed), (16, Some(1.0), None));
    assert_eq!((a.requests, a.left_out.len()), (20, 0));
    // Paired by request, the requests' own spread cancels.
    assert!(a.parts.sampling.unwrap() < 1e-9, "{:?}", a.parts);
    assert!((a.parts.transfer.unwrap() - 0.05).abs() < 1e-12 && a.parts.model.unwrap() < 1e-12, "{:?}", a.parts);
    assert!((a.lo.unwrap() - 1.9).abs() < 1e-9 && (a.hi.unwrap() - 2.1).abs() < 1e-9);
    // A change within a tie is no flip.
    let flips: Vec<_> = a.flips.iter().map(|f| (f.key.as_str(), f.best_after.budget)).collect();
    assert_eq!(flips, [("siblings", 16)]);
    assert!((a.flips[0].loss - 0.2).abs() < 1e-12);
    assert_eq!(a.candidates.len(), 3);
}

/// Where a policy that sizes trees by the step is best, inputs flip the fixed budget beside it.
#[test]
fn flips_are_those_of_the_fixed_budget() {
    let mut s = setting();
    s.candidates.push(Candidate { fixed: false, ..candidate("batch-wide", 64, 3.3, 15.0) });
    for v in &mut s.variants {
        v.rates.push(v.rates[1] * 1.1);
    }
    let a = answer(&s, &Resamples::new(20, 100, 1)).unwrap();
    assert_eq!((a.best.policy.as_str(), a.best_fixed.unwrap().choice.budget), ("batch-wide", 8));
    let flips: Vec<_> = a.flips.iter().map(|f| (f.key.as_str(), f.best_after.budget)).collect();
    assert_eq!(flips, [("siblings", 16)]);
}

#[test]
fn close_candidates_share_the_probability() {
    let mut s = setting();
    // As good on average, better on half of the requests.
    for (i, r) in s.candidates[2].requests.iter_mut().enumerate() {
        r.0 *= if i % 2 == 0 { 1.222 } else { 1.011 };
    }
    let a = answer(&s, &Resamples::new(20, 500, 1)).unwrap();
    let p = a.p_best.unwrap();
    assert!(p > 0.05 && p < 1.0, "{p}");
    assert!(a.parts.sampling.unwrap() > 0.0);
}

#[test]
fn without_plain_decoding_there_is_no_answer() {
    let s = Setting { plain: None, ..setting() };
    assert_eq!(answer(&s, &Resamples::new(20, 100, 1)), None);
    let s = Setting { candidates: vec![candidate("plain", 0, 1.0, f64::NAN)], ..setting() };
    assert_eq!(answer(&s, &Resamples::new(20, 100, 1)), None);
}

/// What was not computed is null and said, and what is left is a lower bound; it never looks like certainty.
#[test]
fn parts_that_were_not_computed_are_null_and_named() {
    let gap = |part, whole| Gap { part, whole, why: "nobody moved it".to_owned() };
    let resamples = Resamples::new(20, 200, 1);
    let whole = answer(&setting(), &resamples).unwrap();
    let s = Setting { gaps: vec![gap(Part::Transfer, true)], ..setting() };
    let a = answer(&s, &resamples).unwrap();
    assert_eq!((a.parts.transfer, a.parts.model.is_some(), a.at_least()), (None, true, true));
    assert_eq!(a.left_out, ["transfer: nobody moved it"]);
    assert!(a.hi.unwrap() - a.lo.unwrap() < whole.hi.unwrap() - whole.lo.unwrap());
    // Some of a part is still a part.
    let a = answer(&Setting { gaps: vec![gap(Part::Transfer, false)], ..setting() }, &resamples).unwrap();
    assert_eq!((a.parts, a.left_out.len()), (whole.parts, 1));
    // An input under which there is no price is no certainty either.
    let mut s = setting();
    s.variants[0].rates[0] = f64::NAN;
    let a = answer(&s, &resamples).unwrap();
    assert_eq!(a.left_out, ["transfer: no price with moe moved"]);
    // Nothing computed at all: no ends.
    let mut s = Setting { gaps: vec![gap(Part::Transfer, true), gap(Part::Model, true)], ..setting() };
    s.candidates.iter_mut().for_each(|c| c.requests.truncate(2));
    let a = answer(&s, &Resamples::new(2, 200, 1)).unwrap();
    assert_eq!((a.lo, a.hi, a.p_best, a.parts), (None, None, None, ErrorParts::default()));
}

#[test]
fn few_requests_are_said_and_fewer_have_no_interval() {
    let of = |n: usize| {
        let mut s = setting();
        s.candidates.iter_mut().for_each(|c| c.requests.truncate(n));
        answer(&s, &Resamples::new(n, 200, 1)).unwrap()
    };
    assert!(!of(20).at_least());
    let a = of(12);
    assert!(a.parts.sampling.is_some() && a.p_best.is_some());
    assert_eq!(a.left_out, ["sampling: 12 requests are few, and a bootstrap over fewer than 20 is too narrow"]);
    let a = of(4);
    assert_eq!((a.parts.sampling, a.p_best, a.requests), (None, None, 4));
    assert_eq!(a.left_out, ["sampling: 4 requests are too few for an interval, which takes 5 or more"]);
    assert!(of(1).left_out[0].starts_with("sampling: 1 request is too few"));
}

/// What a source counted with errors widens the sampling part, beside the resampled requests.
#[test]
fn errors_of_counted_rates_are_sampling() {
    let mut s = setting();
    for rate in [0.18, 0.22] {
        s.variants.push(Variant {
            key: "conditional.1".to_owned(),
            input: "rate at position 1".to_owned(),
            change: "1.96 standard errors".to_owned(),
            part: Part::Sampling,
            rates: vec![0.1, rate, 0.15],
        });
    }
    let (with, without) = (&answer(&s, &Resamples::new(20, 500, 1)).unwrap(), &setting());
    let without = answer(without, &Resamples::new(20, 500, 1)).unwrap();
    assert!((with.parts.sampling.unwrap() - 0.1).abs() < 1e-9, "{:?}", with.parts);
    assert_eq!((with.parts.model, with.parts.transfer), (without.parts.model, without.parts.transfer));
    let width = |a: &crate::results::Answer| (a.hi.unwrap() - a.lo.unwrap()) / 2.0 / a.speedup;
    assert!((width(with) - width(&without).hypot(0.1)).abs() < 1e-9);
}

/// An input that moves the gain one way only: the interval holds the end that it leads to.
#[test]
fn a_one_sided_input_lies_within_the_interval() {
    let mut s = setting();
    for rates in [[0.1, 0.17, 0.15], [0.1, 0.2, 0.18]] {
        let (key, input, change) =
            ("experts".to_owned(), "distinct experts".to_owned(), "counted otherwise".to_owned());
        s.variants.push(Variant { key, input, change, part: Part::Transfer, rates: rates.to_vec() });
    }
    let a = answer(&s, &Resamples::new(20, 500, 1)).unwrap();
    assert!(a.lo.unwrap() < 1.7, "{:?} {:?}", a.lo, a.parts);
    assert!((a.parts.transfer.unwrap() - 0.05f64.hypot(0.15)).abs() < 1e-12);
}
