//! The answer of one setting.

use super::resample::{Resamples, central};
use crate::results::{Answer, CandidateGain, Choice, ErrorParts, Flip};

/// Candidates whose throughput differs by less than this share are as good as each other: no input *flips* between them.
pub const TIE: f64 = 0.005;

/// One policy at one budget, as it did on the setting's requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Which.
    pub choice: Choice,
    /// Whether its trees have the same size in every step.
    pub fixed: bool,
    /// Tokens per verify step, bonus included.
    pub tau: f64,
    /// Mean rows per request and step, root included.
    pub rows: f64,
    /// Tokens decoded and the ms that they took one user, request by request, in the order that all candidates share.
    pub requests: Vec<(f64, f64)>,
}

impl Candidate {
    /// Tokens per ms and user over all requests: a ratio of sums.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let (tokens, ms) = self.requests.iter().fold((0.0, 0.0), |s, r| (s.0 + r.0, s.1 + r.1));
        tokens / ms
    }
}

/// Whose error a variant stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// What the acceptance source counted, beside the requests that are resampled.
    Sampling,
    /// The model of acceptance.
    Model,
    /// The transfer of the cost model.
    Transfer,
}

/// The setting with one input moved by its stated error.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    /// Short name of the input, the same for its low and high end.
    pub key: String,
    /// The input in words.
    pub input: String,
    /// By how much it was moved, in words.
    pub change: String,
    /// Whose error it is.
    pub part: Part,
    /// Tokens per ms and user of every candidate then, in the order of the candidates.
    pub rates: Vec<f64>,
}

/// One acceptance, context and concurrency with all that ran there.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Name of the acceptance.
    pub acceptance: String,
    /// Positions per request; 0 = as the trace has them.
    pub context: u32,
    /// Requests at once.
    pub concurrency: u32,
    /// What ran, in file order.
    pub candidates: Vec<Candidate>,
    /// Index of plain decoding.
    pub plain: Option<usize>,
    /// Index of today's practice.
    pub reference: Option<usize>,
    /// Inputs moved by their errors.
    pub variants: Vec<Variant>,
}

/// What a variant does to a choice.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect<'s> {
    /// The variant.
    pub variant: &'s Variant,
    /// Index of the best candidate then.
    pub best: usize,
    /// Share of throughput lost then by keeping the first choice.
    pub loss: f64,
    /// The first choice's throughput over plain decoding then; `None` without plain decoding.
    pub speedup: Option<f64>,
}

/// The candidate with the highest rate; of equals the first. Rates that are not finite never win.
fn argmax(rates: &[f64]) -> Option<usize> {
    let mut best: Option<usize> = None;
    for (i, rate) in rates.iter().enumerate().filter(|r| r.1.is_finite()) {
        if best.is_none_or(|b| *rate > rates[b]) {
            best = Some(i);
        }
    }
    best
}

/// What every variant of a setting does to the choice of candidate `chosen`. A fixed candidate is compared with fixed ones:
/// what a policy that sizes its trees by the step would do under a variant is not simulated anew.
#[must_use]
pub fn effects(setting: &Setting, chosen: usize) -> Vec<Effect<'_>> {
    let fixed = |i: usize| setting.candidates.get(i).is_some_and(|c| c.fixed);
    let comparable = |i: usize| fixed(i) || !fixed(chosen);
    let effect = |variant: &'_ Variant| {
        let rivals = |(i, rate): (usize, &f64)| if comparable(i) { *rate } else { f64::NAN };
        let best = argmax(&variant.rates.iter().enumerate().map(rivals).collect::<Vec<_>>())?;
        let kept = *variant.rates.get(chosen)?;
        let plain = setting.plain.and_then(|p| variant.rates.get(p)).copied();
        let loss = (1.0 - kept / variant.rates[best]).max(0.0);
        Some((best, loss, plain.map(|p| kept / p)))
    };
    let all = setting.variants.iter();
    all.filter_map(|v| effect(v).map(|(best, loss, speedup)| Effect { variant: v, best, loss, speedup })).collect()
}

/// Half the range of `base` and its moved values, relative to `base`, inputs added as independent.
fn spread(effects: &[Effect<'_>], part: Part, base: f64) -> f64 {
    let mut keys: Vec<&str> = Vec::new();
    let mut sum = 0.0;
    for e in effects.iter().filter(|e| e.variant.part == part) {
        if keys.contains(&e.variant.key.as_str()) {
            continue;
        }
        keys.push(&e.variant.key);
        let same = effects.iter().filter(|o| o.variant.key == e.variant.key && o.variant.part == part);
        let (lo, hi) = same
            .filter_map(|o| o.speedup)
            .filter(|s| s.is_finite())
            .fold((base, base), |(lo, hi), s| (lo.min(s), hi.max(s)));
        sum += ((hi - lo) / 2.0 / base).powi(2);
    }
    sum.sqrt()
}

/// The answer of a setting over `resamples` of its requests. `None` where no candidate has a rate, or nothing was decoded
/// plainly to compare with.
#[must_use]
pub fn answer(setting: &Setting, resamples: &Resamples) -> Option<Answer> {
    let plain = setting.plain?;
    let rates: Vec<f64> = setting.candidates.iter().map(Candidate::rate).collect();
    let best = argmax(&rates)?;
    let base = *rates.get(plain).filter(|r| r.is_finite() && **r > 0.0)?;
    let speedup = rates[best] / base;

    let draws: Vec<Vec<f64>> = setting.candidates.iter().map(|c| resamples.ratios(&c.requests)).collect();
    let count = draws.first().map_or(0, Vec::len);
    let wins = (0..count).filter(|&i| argmax(&draws.iter().map(|d| d[i]).collect::<Vec<_>>()) == Some(best)).count();
    let paired: Vec<f64> = draws[best].iter().zip(&draws[plain]).map(|(a, b)| a / b).collect();
    let sampling = central(&paired).map_or(0.0, |(lo, hi)| (hi - lo) / 2.0 / speedup);

    let moved = effects(setting, best);
    let parts = ErrorParts {
        sampling: sampling.hypot(spread(&moved, Part::Sampling, speedup)),
        model: spread(&moved, Part::Model, speedup),
        transfer: spread(&moved, Part::Transfer, speedup),
    };
    let width = (parts.sampling.powi(2) + parts.model.powi(2) + parts.transfer.powi(2)).sqrt();
    let gain = |i: usize| CandidateGain { choice: setting.candidates[i].choice.clone(), speedup: rates[i] / base };
    let without = |skip: &dyn Fn(usize) -> bool| {
        argmax(&rates.iter().enumerate().map(|(i, r)| if skip(i) { f64::NAN } else { *r }).collect::<Vec<_>>())
    };
    let runner_up = without(&|i| i == best);
    let budget = without(&|i| !setting.candidates[i].fixed);
    let best_fixed = budget.filter(|&i| i != best);
    // Which single input changes the budget.
    let focus = budget.unwrap_or(best);
    let moved = effects(setting, focus);
    let over = |i: Option<usize>| i.map(|i| rates[best] / rates[i]).filter(|r| r.is_finite());
    let flip = |e: &Effect<'_>| Flip {
        key: e.variant.key.clone(),
        input: e.variant.input.clone(),
        change: e.variant.change.clone(),
        best_after: setting.candidates[e.best].choice.clone(),
        loss: e.loss,
    };
    Some(Answer {
        acceptance: setting.acceptance.clone(),
        context: setting.context,
        concurrency: setting.concurrency,
        best: setting.candidates[best].choice.clone(),
        tau: setting.candidates[best].tau,
        rows: setting.candidates[best].rows,
        speedup,
        lo: speedup * (1.0 - width),
        hi: speedup * (1.0 + width),
        parts,
        over_reference: over(setting.reference),
        reference: setting.reference.map(|i| setting.candidates[i].choice.clone()),
        best_fixed: best_fixed.map(gain),
        p_best: if count == 0 { 1.0 } else { wins as f64 / count as f64 },
        runner_up: runner_up.map(|i| setting.candidates[i].choice.clone()),
        over_runner_up: over(runner_up),
        flips: moved.iter().filter(|e| e.best != focus && e.loss >= TIE).map(flip).collect(),
        candidates: (0..rates.len()).filter(|&i| rates[i].is_finite()).map(gain).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(policy: &str, budget: u32, tau: f64, ms: f64) -> Candidate {
        let choice = Choice { policy: policy.to_owned(), budget };
        // Requests differ by a factor that all candidates share.
        let requests =
            (0..20).map(|i| 1.0 + f64::from(i * 7 % 5) / 10.0).map(|f| (tau * f * 10.0, ms * 10.0)).collect();
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
        }
    }

    #[test]
    fn the_answer_names_what_is_best_and_what_would_change_it() {
        let a = answer(&setting(), &Resamples::new(20, 500, 1)).unwrap();
        assert_eq!((a.best.policy.as_str(), a.best.budget), ("best-first", 8));
        assert!((a.speedup - 2.0).abs() < 1e-12 && (a.over_reference.unwrap() - 0.2 / 0.18).abs() < 1e-12);
        assert_eq!((a.runner_up.unwrap().budget, a.p_best, a.best_fixed), (16, 1.0, None));
        // Paired by request, the requests' own spread cancels.
        assert!(a.parts.sampling < 1e-9, "{:?}", a.parts);
        assert!((a.parts.transfer - 0.05).abs() < 1e-12 && a.parts.model < 1e-12, "{:?}", a.parts);
        assert!((a.lo - 1.9).abs() < 1e-9 && (a.hi - 2.1).abs() < 1e-9);
        // A change within a tie is no flip.
        let flips: Vec<_> = a.flips.iter().map(|f| (f.key.as_str(), f.best_after.budget)).collect();
        assert_eq!(flips, [("siblings", 16)]);
        assert!((a.flips[0].loss - 0.2).abs() < 1e-12);
        assert_eq!(a.candidates.len(), 3);
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
        assert!((with.parts.sampling - 0.1).abs() < 1e-9, "{:?}", with.parts);
        assert_eq!((with.parts.model, with.parts.transfer), (without.parts.model, without.parts.transfer));
        let width = |a: &Answer| (a.hi - a.lo) / 2.0 / a.speedup;
        assert!((width(with) - width(&without).hypot(0.1)).abs() < 1e-9);
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
        assert!(a.p_best > 0.05 && a.p_best < 1.0, "{}", a.p_best);
        assert!(a.parts.sampling > 0.0);
    }

    #[test]
    fn without_plain_decoding_there_is_no_answer() {
        let s = Setting { plain: None, ..setting() };
        assert_eq!(answer(&s, &Resamples::new(20, 100, 1)), None);
        let s = Setting { candidates: vec![candidate("plain", 0, 1.0, f64::NAN)], ..setting() };
        assert_eq!(answer(&s, &Resamples::new(20, 100, 1)), None);
    }
}
