//! Teacher-forced over the CPU engine's greedy text: where the drafter ranks the true tokens.

use crate::pairs::Script;
use crate::subject::{Subject, side_by_side, subjects};
use crate::watch::{Place, places};
use treeline_core::Request;
use treeline_cuda::device::Dtype;

/// Ranks that are compared.
const WIDTH: u32 = 64;

/// Places of the CPU engine, one request on each core.
fn on_cpu(subject: &Subject, requests: &[Request], truth: &Script) -> Vec<Place> {
    let one = |_: usize, r: &Request| places(&mut subject.on_cpu(), std::slice::from_ref(r), truth, WIDTH);
    let mut all = side_by_side(requests, &one).concat();
    all.sort_unstable();
    all
}

/// Share of places with the same rank, among those that `of` takes.
fn equal(pairs: &[(Place, Place)], of: &dyn Fn(&Place) -> bool) -> (f64, usize) {
    let taken: Vec<_> = pairs.iter().filter(|(cpu, _)| of(cpu)).collect();
    let same = taken.iter().filter(|(cpu, cuda)| cpu.rank == cuda.rank).count();
    (same as f64 / taken.len().max(1) as f64, taken.len())
}

/// The rank of the target's token in the drafter's list, over the CPU engine's greedy text. Fixtures are random: their lists
/// are nearly flat, so that bf16 says nothing about them. `least` is the share of equal ranks over all places, over those of
/// level 1, and over those where the CPU engine's rank is 0.
fn ranks_agree(dtype: Dtype, least: [f64; 3]) {
    for subject in subjects(dtype).into_iter().filter(|s| s.real() || dtype == Dtype::F32) {
        let requests = subject.greedy();
        let truth = Script::of(subject.greedy_text(), &requests);
        let cpu = on_cpu(&subject, &requests, &truth);
        let cuda = places(&mut subject.engine(subject.either(16, 2), 16), &requests, &truth, WIDTH);
        assert_eq!(cpu.len(), cuda.len());
        let pairs: Vec<(Place, Place)> = cpu.into_iter().zip(cuda).collect();
        let same_place = |(a, b): &(Place, Place)| (a.request, a.root, a.level) == (b.request, b.root, b.level);
        assert!(pairs.iter().all(same_place));
        let (all, n) = equal(&pairs, &|_| true);
        let (first, firsts) = equal(&pairs, &|p| p.level == 1);
        let (best, bests) = equal(&pairs, &|p| p.rank == Some(0));
        let (near, nears) = equal(&pairs, &|p| p.rank.is_some_and(|r| r < 4));
        println!(
            "{}: ranks equal at {:.3} % of {n} places; level 1: {:.3} % of {firsts}; rank 0: {:.3} % of {bests}; \
             ranks below 4: {:.3} % of {nears}",
            subject.name(),
            all * 100.0,
            first * 100.0,
            best * 100.0,
            near * 100.0
        );
        let positions = pairs.iter().filter(|(p, _)| p.level == 1).count();
        assert!(positions >= subject.either(4000, 40), "only {positions} positions");
        for (share, least) in [all, first, best].into_iter().zip(least) {
            assert!(share >= least, "{}: {share}", subject.name());
        }
        // Control: one position further on, the lists are others.
        let moved: Vec<(Place, Place)> = pairs.iter().zip(&pairs[1..]).map(|(a, b)| (a.0, b.1)).collect();
        assert!(equal(&moved, &|_| true).0 < 0.9, "the comparison sees nothing");
    }
}

#[test]
fn ranks_agree_in_f32() {
    ranks_agree(Dtype::F32, [0.999, 0.999, 0.999]);
}

/// In bf16 far ranks of flat lists change places; what the drafter thinks best rarely does.
#[test]
fn ranks_agree_in_bf16() {
    ranks_agree(Dtype::Bf16, [0.90, 0.96, 0.99]);
}
