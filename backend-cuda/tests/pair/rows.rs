//! Logits of the engine's own passes, decoding along the CPU engine's greedy text.

use crate::pairs::Script;
use crate::subject::{side_by_side, subjects};
use crate::tap::{Tap, emitted};
use treeline_core::testing::Shape;
use treeline_core::{Law, Request, RunSetup, run};
use treeline_cuda::device::Dtype;
use treeline_cuda::testing::relative_error;

/// One row against the CPU engine's.
struct Row {
    /// Request and token.
    place: (usize, usize),
    /// ‖Δ‖ / ‖reference‖.
    relative: f64,
    kl: f64,
    /// The reference's best logit over its second.
    margin: f32,
    /// The largest difference of a logit.
    most: f32,
    same: bool,
}

fn log_softmax(x: &[f32]) -> Vec<f64> {
    let most = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let norm = x.iter().map(|x| f64::from(x - most).exp()).sum::<f64>().ln() + f64::from(most);
    x.iter().map(|x| f64::from(*x) - norm).collect()
}

/// The two best tokens.
fn best(x: &[f32]) -> (usize, usize) {
    let mut two = if x[1] > x[0] { (1, 0) } else { (0, 1) };
    for i in 2..x.len() {
        if x[i] > x[two.0] {
            two = (i, two.0);
        } else if x[i] > x[two.1] {
            two.1 = i;
        }
    }
    two
}

impl Row {
    fn new(place: (usize, usize), want: &[f32], got: &[f32]) -> Self {
        let (p, q) = (log_softmax(want), log_softmax(got));
        let (first, second) = best(want);
        Self {
            place,
            relative: relative_error(got, want),
            kl: p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum(),
            margin: want[first] - want[second],
            most: want.iter().zip(got).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max),
            same: best(got).0 == first,
        }
    }
}

fn quantile(rows: &mut [Row], of: impl Fn(&Row) -> f64, share: f64) -> f64 {
    rows.sort_by(|a, b| of(a).total_cmp(&of(b)));
    of(&rows[((rows.len() - 1) as f64 * share).round() as usize])
}

fn rows(dtype: Dtype) -> Vec<(String, bool, Vec<Row>)> {
    let look = |subject: crate::subject::Subject| {
        let (requests, texts) = (subject.greedy(), subject.greedy_text());
        let truth = Script::of(texts, &requests);
        let slots = subject.either(8, 2);
        let mut tap = Tap::new(subject.engine(slots, 8), slots);
        let pass = tap.pass.clone();
        let mut got: Vec<Vec<Vec<f32>>> = vec![Vec::new(); requests.len()];
        let setup = RunSetup { budget: 0, concurrency: slots, law: &Law::Forced(&truth), cost: None };
        run(&mut tap, &mut Shape::chain(0), &requests, &setup, &mut |view| {
            for (request, _, _, row) in emitted(view) {
                got[request].push(pass.borrow()[row].clone());
            }
        })
        .unwrap();
        let one = |i: usize, _: &Request| {
            // The first token comes from the prompt, the second from the first pass.
            let want = &subject.greedy_logits()[i][1..];
            assert_eq!(got[i].len(), want.len());
            let rows = want.iter().zip(&got[i]).enumerate();
            rows.map(|(token, (want, got))| Row::new((i, token + 1), want, got)).collect::<Vec<_>>()
        };
        let all: Vec<Row> = side_by_side(&requests, &one).into_iter().flatten().collect();
        (subject.name(), subject.real(), all)
    };
    subjects(dtype).into_iter().map(look).collect()
}

/// Prints the figures of some rows: median, 95 %, 99 % and largest relative error and divergence, and the argmax.
fn tell(name: &str, rows: &mut [Row]) -> (f64, f64) {
    let shares = [0.5, 0.95, 0.99, 1.0];
    let relative = shares.map(|s| quantile(rows, |r| r.relative, s));
    let kl = shares.map(|s| quantile(rows, |r| r.kl, s));
    let other = rows.iter().filter(|r| !r.same).count();
    println!(
        "{name}: {} rows, relative error {:.1e} / {:.1e} / {:.1e} / {:.1e} (median, 95 %, 99 %, largest), \
         KL {:.1e} / {:.1e} / {:.1e} / {:.1e}; another argmax in {other}",
        rows.len(),
        relative[0],
        relative[1],
        relative[2],
        relative[3],
        kl[0],
        kl[1],
        kl[2],
        kl[3]
    );
    // A row's argmax may only move where the row's errors reach its margin.
    let moved = rows.iter().filter(|r| !r.same && r.margin > 4.0 * r.most).count();
    assert_eq!(moved, 0, "{name}: another argmax in rows without a near-tie");
    (relative[0], relative[3])
}

/// Arithmetic in f32 parts at the sixth digit. That may decide a router whose two scores agree to as many digits: such a row has
/// other experts, not other arithmetic, and of some fifty thousand choices a few may be so near.
#[test]
fn logits_agree_in_f32() {
    for (name, _, mut rows) in rows(Dtype::F32) {
        tell(&name, &mut rows);
        let parted: Vec<&Row> = rows.iter().filter(|r| r.relative > 1e-3).collect();
        for r in &parted {
            println!(
                "  request {} at token {}: relative error {:.1e}, KL {:.1e}",
                r.place.0, r.place.1, r.relative, r.kl
            );
        }
        assert!(parted.len() <= rows.len() / 1000, "{name}: {} of {} rows", parted.len(), rows.len());
        let rest = quantile(&mut rows, |r| r.relative, 0.999);
        assert!(rest <= 1e-5, "{name}: {rest:e}");
    }
}

/// In bf16 a router that is nearly undecided may choose another expert, which is a jump of the model: the median tells of the
/// arithmetic, the tail of the routers.
#[test]
fn logits_agree_in_bf16() {
    for (name, real, mut rows) in rows(Dtype::Bf16) {
        let (median, largest) = tell(&name, &mut rows);
        assert!(median <= 3e-2, "{name}: {median:e}");
        assert!(!real || largest <= 1.0, "{name}: {largest:e}");
    }
}
