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

/// Requests below which a bootstrap over them is known to be too narrow: its interval is then a lower bound.
pub const FEW: usize = 20;

/// Requests below which there is no interval over them at all.
pub const LEAST: usize = 5;

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

impl Part {
    /// Its name in `priced.json` and in words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sampling => "sampling",
            Self::Model => "model",
            Self::Transfer => "transfer",
        }
    }
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
    /// What was not moved though it is uncertain.
    pub gaps: Vec<Gap>,
}

/// Uncertainty that nobody computed: it must not look like certainty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// Whose error it is.
    pub part: Part,
    /// Whether nothing of the part was computed; else some of it was.
    pub whole: bool,
    /// Why, in words that follow the part's name and a colon.
    pub why: String,
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

/// How far moved inputs take a speed-up from `base`, relative to it: of each input the end that takes it farther, so that the
/// interval holds what every single input may do, whichever way; inputs added as independent. And the inputs under which there
/// is no speed-up to compare.
fn spread<'e>(effects: &'e [Effect<'_>], part: Part, base: f64) -> (f64, Vec<&'e str>) {
    let mut keys: Vec<&str> = Vec::new();
    let (mut sum, mut blind) = (0.0, Vec::new());
    for e in effects.iter().filter(|e| e.variant.part == part) {
        if keys.contains(&e.variant.key.as_str()) {
            continue;
        }
        keys.push(&e.variant.key);
        let same = || effects.iter().filter(|o| o.variant.key == e.variant.key && o.variant.part == part);
        let known = || same().filter_map(|o| o.speedup).filter(|s| s.is_finite());
        if known().count() < same().count() {
            blind.push(e.variant.input.as_str());
        }
        let far = known().map(|s| (s / base - 1.0).abs()).fold(0.0, f64::max);
        sum += far.powi(2);
    }
    (sum.sqrt(), blind)
}

/// One part of an interval from the effects of its inputs; what it leaves out goes to `left_out`.
fn part(setting: &Setting, effects: &[Effect<'_>], part: Part, base: f64, left_out: &mut Vec<String>) -> Option<f64> {
    let gaps = || setting.gaps.iter().filter(|g| g.part == part);
    left_out.extend(gaps().map(|g| format!("{}: {}", part.name(), g.why)));
    if gaps().any(|g| g.whole) {
        return None;
    }
    let (half, blind) = spread(effects, part, base);
    if !blind.is_empty() {
        left_out.push(format!("{}: no price with {} moved", part.name(), blind.join(", ")));
    }
    Some(half)
}

/// The sampling part from paired draws of the speed-up.
fn sampling(requests: usize, paired: &[f64], speedup: f64, left_out: &mut Vec<String>) -> Option<f64> {
    let half = central(paired).map(|(lo, hi)| (hi - lo) / 2.0 / speedup).filter(|h| h.is_finite());
    let of = if requests == 1 { "1 request is".to_owned() } else { format!("{requests} requests are") };
    if requests < LEAST || half.is_none() {
        left_out.push(format!("sampling: {of} too few for an interval, which takes {LEAST} or more"));
        return None;
    }
    if requests < FEW {
        left_out.push(format!("sampling: {of} few, and a bootstrap over fewer than {FEW} is too narrow"));
    }
    half
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
    let requests = setting.candidates.iter().map(|c| c.requests.len()).min().unwrap_or(0);

    let draws: Vec<Vec<f64>> = setting.candidates.iter().map(|c| resamples.ratios(&c.requests)).collect();
    let count = draws.first().map_or(0, Vec::len);
    let wins = (0..count).filter(|&i| argmax(&draws.iter().map(|d| d[i]).collect::<Vec<_>>()) == Some(best)).count();
    let paired: Vec<f64> = draws[best].iter().zip(&draws[plain]).map(|(a, b)| a / b).collect();

    let moved = effects(setting, best);
    let mut left_out = Vec::new();
    let parts = ErrorParts {
        sampling: sampling(requests, &paired, speedup, &mut left_out)
            .and_then(|half| Some(half.hypot(part(setting, &moved, Part::Sampling, speedup, &mut left_out)?))),
        model: part(setting, &moved, Part::Model, speedup, &mut left_out),
        transfer: part(setting, &moved, Part::Transfer, speedup, &mut left_out),
    };
    let known: Vec<f64> = [parts.sampling, parts.model, parts.transfer].into_iter().flatten().collect();
    let width = (!known.is_empty()).then(|| known.iter().map(|p| p.powi(2)).sum::<f64>().sqrt());
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
        requests: requests as u32,
        lo: width.map(|w| speedup * (1.0 - w)),
        hi: width.map(|w| speedup * (1.0 + w)),
        parts,
        left_out,
        over_reference: over(setting.reference),
        reference: setting.reference.map(|i| setting.candidates[i].choice.clone()),
        best_fixed: best_fixed.map(gain),
        p_best: (count > 0 && requests >= LEAST).then(|| wins as f64 / count as f64),
        runner_up: runner_up.map(|i| setting.candidates[i].choice.clone()),
        over_runner_up: over(runner_up),
        flips: moved.iter().filter(|e| e.best != focus && e.loss >= TIE).map(flip).collect(),
        candidates: (0..rates.len()).filter(|&i| rates[i].is_finite()).map(gain).collect(),
    })
}
