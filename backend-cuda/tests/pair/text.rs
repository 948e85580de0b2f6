//! Greedy text against the CPU engine's: the same up to each request's first near-tie.

use crate::pairs::policy;
use crate::subject::{Subject, subjects};
use crate::tap::{Tap, emitted};
use serde_json::json;
use treeline_core::testing::Shape;
use treeline_core::{Engine, Law, Request, RunSetup, run};
use treeline_cuda::device::Dtype;
use treeline_cuda::engine::CudaScorer;

/// Where a text leaves the CPU engine's.
#[derive(Debug)]
struct Parting {
    /// Emitted tokens before it.
    at: usize,
    /// The CPU engine's logit of its own token over that of the device's.
    margin: f32,
    /// The largest difference between the logits of both engines in the row that the token came from.
    error: f32,
}

/// A token that the device chose, and the logits that it chose it by (`None`: those of the prompt).
struct Choice {
    at: usize,
    token: u32,
    logits: Option<Vec<f32>>,
}

/// Looks into a choice that is not the CPU engine's, of request number `index`.
fn parting(subject: &Subject, index: usize, choice: &Choice) -> Parting {
    let (cpu, text) = (&subject.greedy_logits()[index][choice.at], &subject.greedy_text()[index]);
    let of_prompt = || {
        let prefix = [&subject.greedy()[index].prompt, &text[..choice.at]].concat();
        let mut scorer = CudaScorer::new(&subject.gpu, subject.cuda.target().clone(), subject.context()).unwrap();
        prefix.chunks(256).map(|chunk| scorer.extend(chunk).unwrap()).last().and_then(|mut rows| rows.pop()).unwrap()
    };
    let cuda = choice.logits.clone().unwrap_or_else(of_prompt);
    let margin = cpu[text[choice.at] as usize] - cpu[choice.token as usize];
    let error = cpu.iter().zip(&cuda).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    Parting { at: choice.at, margin, error }
}

/// Whether errors of the two logits could have turned a choice, and none of them is larger than `most`.
fn near_tie(parting: &Parting, most: f32) -> bool {
    parting.margin <= 4.0 * parting.error && parting.error <= most
}

/// The first choice of each request that is not the CPU engine's.
fn choices(tap: &mut Tap, kind: &str, budget: u32, requests: &[Request], want: &[Vec<u32>]) -> Vec<Option<Choice>> {
    let mut first: Vec<Option<Choice>> = requests.iter().map(|_| None).collect();
    let (pass, law) = (tap.pass.clone(), Law::Greedy);
    let setup = RunSetup { budget, concurrency: tap.info().slots, law: &law, cost: None };
    let mut sink = |view: &treeline_core::RoundView<'_>| {
        for (index, position, token, row) in emitted(view) {
            let at = position as usize - requests[index].prompt.len();
            if first[index].is_none() && want[index][at] != token {
                first[index] = Some(Choice { at, token, logits: Some(pass.borrow()[row].clone()) });
            }
        }
    };
    let responses = match kind {
        "plain" => run(tap, &mut Shape::chain(0), requests, &setup, &mut sink),
        _ => {
            let mut policy = policy(kind, &json!({}), budget, tap);
            run(tap, &mut *policy, requests, &setup, &mut sink)
        }
    };
    for (index, response) in responses.unwrap().iter().enumerate() {
        assert!(response.end.is_ok(), "{:?}", response.end);
        assert_eq!(response.tokens.len(), want[index].len());
        if response.tokens[0] != want[index][0] {
            first[index] = Some(Choice { at: 0, token: response.tokens[0], logits: None });
        }
    }
    first
}

/// `most` is the largest error of a logit at which a text may part.
fn text_agrees(dtype: Dtype, most: f32) {
    for subject in subjects(dtype) {
        let (requests, want) = (subject.greedy(), subject.greedy_text());
        let slots = subject.either(8, 2);
        for (kind, budget) in [("plain", 0), ("chain", 7), ("best-first", 32)] {
            let mut tap = Tap::new(subject.engine(slots, 32), slots * (budget + 1));
            let choices = choices(&mut tap, kind, budget, &requests, want);
            let (mut parted, mut equal) = (Vec::new(), 0);
            for (index, choice) in choices.iter().enumerate() {
                equal += choice.as_ref().map_or(want[index].len(), |c| c.at);
                parted.extend(choice.as_ref().map(|c| (requests[index].id, parting(&subject, index, c))));
            }
            let largest = |of: fn(&Parting) -> f32| parted.iter().map(|(_, p)| of(p)).fold(0.0, f32::max);
            println!(
                "{}: {kind} {budget}: {} of {} texts part; {equal} tokens equal before; largest margin {:.2e}, error {:.2e}",
                subject.name(),
                parted.len(),
                requests.len(),
                largest(|p| p.margin),
                largest(|p| p.error)
            );
            for (id, p) in &parted {
                println!(
                    "  request {id} at token {}: margin {:.2e}, the row's largest error {:.2e}",
                    p.at, p.margin, p.error
                );
                assert!(near_tie(p, most), "{}: request {id} parts without a near-tie: {p:?}", subject.name());
            }
        }
        // Control: a wrong token in a place of no doubt is found.
        let clear = (0..want[0].len()).any(|at| {
            let token = (want[0][at] + 1) % 60;
            !near_tie(&parting(&subject, 0, &Choice { at, token, logits: None }), most)
        });
        assert!(clear, "nothing would count as a difference");
    }
}

#[test]
fn greedy_text_parts_only_at_near_ties_in_f32() {
    text_agrees(Dtype::F32, 2e-3);
}

/// Errors in bf16 are large where a router chose another expert (see the logits' test).
#[test]
fn greedy_text_parts_only_at_near_ties_in_bf16() {
    text_agrees(Dtype::Bf16, 8.0);
}
