//! Greedy text against the CPU engine's: the same up to each request's first near-tie.

use crate::pairs::{decode, policy};
use crate::subject::{Subject, subjects};
use serde_json::json;
use treeline_core::testing::Shape;
use treeline_core::{Law, Request, Sampling};
use treeline_cpu::Scorer;
use treeline_cuda::device::Dtype;
use treeline_cuda::engine::CudaScorer;

/// Where two texts part.
#[derive(Debug)]
struct Parting {
    /// Emitted tokens before it.
    at: usize,
    /// The CPU engine's best logit over the token that the device chose.
    margin: f32,
    /// The largest difference of the row's logits between the devices.
    error: f32,
    /// Root mean square of the row's logits.
    size: f32,
}

/// Looks into the first difference of a request's text; `None` without one.
fn parting(subject: &Subject, request: &Request, want: &[u32], got: &[u32]) -> Option<Parting> {
    let at = want.iter().zip(got).position(|(a, b)| a != b)?;
    let prefix = [&request.prompt, &want[..at]].concat();
    let cpu = Scorer::new(subject.cpu.target().clone()).extend(&prefix);
    let cpu = cpu.row(cpu.nrows() - 1).to_vec();
    let mut scorer = CudaScorer::new(&subject.gpu, subject.cuda.target().clone(), subject.context()).unwrap();
    let rows = prefix.chunks(256).map(|chunk| scorer.extend(chunk).unwrap()).last()?;
    let cuda = rows.last()?;
    let margin = cpu[want[at] as usize] - cpu[got[at] as usize];
    let error = cpu.iter().zip(cuda).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let size = (cpu.iter().map(|x| x * x).sum::<f32>() / cpu.len() as f32).sqrt();
    Some(Parting { at, margin, error, size })
}

/// Whether a parting is a near-tie: errors of the two logits could have turned it, and the margin is below `most`.
fn near_tie(parting: &Parting, most: f32) -> bool {
    parting.margin <= 4.0 * parting.error && parting.margin <= most
}

/// `most` is the largest margin (a difference of logits) at which texts may part.
fn text_agrees(dtype: Dtype, most: f32) {
    for subject in subjects(dtype) {
        let requests = subject.requests(subject.either(60, 3), subject.either(128, 14), Sampling::GREEDY);
        let want = subject.plain(&requests, &Law::Greedy);
        let mut engine = subject.engine(subject.either(8, 2), 32);
        for (kind, budget) in [("plain", 0), ("chain", 7), ("best-first", 32)] {
            let got = match kind {
                "plain" => decode(&mut engine, &mut Shape::chain(0), &requests, &Law::Greedy, 0),
                _ => {
                    let mut policy = policy(kind, &json!({}), budget, &engine);
                    decode(&mut engine, &mut *policy, &requests, &Law::Greedy, budget)
                }
            };
            let partings: Vec<(u64, Parting)> = requests
                .iter()
                .zip(want.iter().zip(&got))
                .filter_map(|(r, (want, got))| Some((r.id, parting(&subject, r, want, got)?)))
                .collect();
            let until: usize = partings.iter().map(|(_, p)| p.at).sum();
            let whole = (requests.len() - partings.len()) * requests[0].max_new as usize;
            println!(
                "{}: {kind} {budget}: {} of {} texts part; {} tokens equal before",
                subject.name(),
                partings.len(),
                requests.len(),
                until + whole
            );
            for (id, p) in &partings {
                println!(
                    "  request {id} at token {}: margin {:.2e}, largest error of the row {:.2e}, its rms {:.2}",
                    p.at, p.margin, p.error, p.size
                );
                assert!(near_tie(p, most), "{}: request {id} parts without a near-tie: {p:?}", subject.name());
            }
        }
        // Control: a text with one wrong token in a place of no doubt is found.
        let mut wrong = want[0].clone();
        let clear = (0..wrong.len()).find_map(|at| {
            wrong[at] = (want[0][at] + 1) % 60;
            let found = parting(&subject, &requests[0], &want[0], &wrong)?;
            wrong[at] = want[0][at];
            (found.at == at && !near_tie(&found, most)).then_some(at)
        });
        assert!(clear.is_some(), "nothing would count as a difference");
    }
}

#[test]
fn greedy_text_parts_only_at_near_ties_in_f32() {
    text_agrees(Dtype::F32, 1e-2);
}

#[test]
fn greedy_text_parts_only_at_near_ties_in_bf16() {
    text_agrees(Dtype::Bf16, 1.0);
}
