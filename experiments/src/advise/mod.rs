//! `treeline advise`: which policy and budget to run, how much hangs on what is not known, and the engines' flags for it.
//!
//! Every candidate of a priced experiment is simulated at every context and concurrency. The choice is the one with the
//! highest throughput; inputs moved by their stated errors say what it would lose if one of them is off, and the same over
//! all settings is the list of what to measure next.

mod engines;
mod flags;
mod notes;
mod sensitivity;
mod text;
mod types;
mod variants;

pub use engines::{DRAFTER, EngineSetting, Support, settings, vllm_schedule};
pub use flags::Flags;
pub use sensitivity::sensitivities;
pub use text::{COLUMNS, text};
pub use types::{ADVICE_VERSION, Advice, AdviceRow, Alternative, ChoiceSettings, ScheduleSetting, Sensitivity};

use crate::decide::{self, Setting};
use crate::priced::{CostVariant, PLAIN, Prepared, Ready, Simulated};
use crate::results::{Answer, Choice, FailedCell, RefusedCell};
use anyhow::Context as _;
use rayon::prelude::*;
use treeline_sim::profile::{DrafterKind, Engine};

/// What one setting came to.
struct Decided {
    setting: Setting,
    /// The same where only fixed sizes have rates under a moved input.
    among_fixed: Setting,
    /// How many of its variants, the first, are inputs with a stated error.
    stated: usize,
    answer: Answer,
    /// Mean cut share of the best candidate's rounds.
    cut: f64,
    in_domain: bool,
}

/// The advice for a priced experiment. `present` is what runs today; it must be among the experiment's candidates.
///
/// # Errors
/// A present choice that is no candidate, nothing that fits into the memory, policies that only a replay runs, what the
/// cost model or the simulation refuses.
pub fn advise(
    prepared: &Prepared<'_>,
    present: Option<&Choice>,
    progress: &(dyn Fn(&str) + Sync),
) -> anyhow::Result<Advice> {
    if let Some(choice) = present {
        let known: Vec<String> = prepared.candidates.iter().map(|c| text::name(&c.choice())).collect();
        anyhow::ensure!(
            prepared.candidates.iter().any(|c| c.choice() == *choice),
            "what runs at present, {}, is not among the candidates: {}",
            text::name(choice),
            known.join(", ")
        );
    }
    if let Some(why) = prepared.untabled() {
        let hint = "run the experiment instead: `treeline run` replays such sources round by round, and its answers name the best";
        return Err(Refusal(format!("advice compares candidates on nested tables: {why}; {hint}")).into());
    }
    let replayed: Vec<String> =
        prepared.candidates.iter().filter(|c| c.fast.is_none()).map(|c| text::name(&c.choice())).collect();
    let extra = variants::deployment_variants(prepared);
    let (mut decided, mut refused, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for (i, source) in prepared.sources.iter().enumerate() {
        progress(&format!("{}: simulating {} candidates", source.name, prepared.candidates.len()));
        let of = prepared.with_source(i, |ready| settings_of(prepared, ready, i, &extra))??;
        for setting in of.settings {
            failed.extend(setting.failed);
            decided.extend(setting.decided);
        }
        refused.extend(of.refused);
    }
    if decided.is_empty() {
        let lost: Option<&str> = failed.first().map(|f: &FailedCell| f.reason.as_str());
        let why = lost.or_else(|| refused.first().map(|r: &RefusedCell| r.reason.as_str()));
        anyhow::bail!("no advice: {}", why.unwrap_or("nothing to compare"));
    }
    Ok(Advice { failed, ..assemble(prepared, present, &decided, refused, &replayed) })
}

/// Advice that cannot be given for what the experiment names.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(String);

/// What a source came to.
struct Settings {
    settings: Vec<One>,
    refused: Vec<RefusedCell>,
}

/// What one context and concurrency came to.
struct One {
    /// `None` where every candidate failed.
    decided: Option<Decided>,
    failed: Vec<FailedCell>,
}

/// Every context and concurrency of one source.
fn settings_of(
    prepared: &Prepared<'_>,
    ready: &Ready<'_>,
    source: usize,
    extra: &[CostVariant],
) -> anyhow::Result<Settings> {
    let outline = &prepared.sources[source];
    let room = prepared.profiles.room()?;
    let contexts: Vec<Option<u32>> = if prepared.run.context.is_empty() {
        vec![None]
    } else {
        prepared.run.context.iter().copied().map(Some).collect()
    };
    let mut jobs = Vec::new();
    let mut refused = Vec::new();
    for &context in &contexts {
        for &concurrency in &prepared.experiment.concurrency {
            let mut runs = Vec::new();
            for (i, c) in prepared.candidates.iter().enumerate().filter(|c| c.1.fast.is_some()) {
                match prepared.fits(&room, source, c, context, concurrency) {
                    Ok(()) => runs.push(i),
                    Err(cell) => refused.push(cell),
                }
            }
            if !runs.is_empty() {
                jobs.push((context, concurrency, runs));
            }
        }
    }
    let scaled = variants::Scaled::new(ready);
    let decide = |(context, concurrency, runs): &(Option<u32>, u32, Vec<usize>)| -> anyhow::Result<One> {
        let tried = runs.par_iter().map(|&i| (i, ready.simulate(i, *context, *concurrency)));
        let (mut ran, mut failed): (Vec<Simulated>, Vec<FailedCell>) = (Vec::new(), Vec::new());
        for (i, result) in tried.collect::<Vec<_>>() {
            match result {
                Ok(run) => ran.push(run),
                Err(e) => failed.push(FailedCell {
                    acceptance: outline.name.clone(),
                    context: context.unwrap_or(outline.prompt),
                    concurrency: *concurrency,
                    choice: Some(prepared.candidates[i].choice()),
                    reason: format!("{e:#}"),
                }),
            }
        }
        if ran.iter().all(|r| prepared.candidates[r.candidate].kind != PLAIN) {
            let lost = failed.iter().any(|f| f.choice.as_ref().is_some_and(|c| c.policy == PLAIN));
            anyhow::ensure!(lost, "plain decoding is needed as the baseline: leave `baseline = false` out");
            return Ok(One { decided: None, failed });
        }
        let mut setting = ready.setting(*context, *concurrency, &ran);
        // The interval has the stated errors alone: another cache type is a choice, not an error.
        let answer = decide::answer(&setting, &ready.resamples).context("plain decoding has no throughput")?;
        let stated = setting.variants.len();
        setting.variants.extend(ready.variants(*context, *concurrency, &ran, extra, false));
        if let Some(scaled) = &scaled {
            setting.variants.extend(scaled.rates(ready, *context, *concurrency, &ran));
        }
        let mut among_fixed = setting.clone();
        for v in &mut among_fixed.variants {
            for (rate, _) in v.rates.iter_mut().zip(&setting.candidates).filter(|(_, c)| !c.fixed) {
                *rate = f64::NAN;
            }
        }
        let best = ran.iter().find(|r| prepared.candidates[r.candidate].choice() == answer.best);
        let (cut, in_domain) = best.map_or((0.0, true), |r| (r.result.cut_share, r.result.in_domain));
        Ok(One { decided: Some(Decided { setting, among_fixed, stated, answer, cut, in_domain }), failed })
    };
    Ok(Settings { settings: jobs.par_iter().map(decide).collect::<anyhow::Result<_>>()?, refused })
}

fn assemble(
    prepared: &Prepared<'_>,
    present: Option<&Choice>,
    decided: &[Decided],
    refused: Vec<RefusedCell>,
    replayed: &[String],
) -> Advice {
    let deployment = &prepared.profiles.deployment;
    let drafter = prepared.profiles.drafter.kind;
    let width = |choice: &Choice| {
        let c = prepared.candidates.iter().find(|c| c.choice() == *choice)?;
        c.params.get("width").and_then(serde_json::Value::as_u64).map(|w| w as u32)
    };
    let runs_today = |choice: &Choice| match deployment.engine {
        Engine::Treeline => true,
        Engine::Sglang => engines::settings(choice, drafter, width(choice))[0].support == Support::Exact,
        Engine::Vllm => engines::settings(choice, drafter, width(choice))[1].support == Support::Exact,
        Engine::Trtllm => choice.budget == 0,
    };
    let mut rows = Vec::new();
    let mut moved = Vec::new();
    for d in decided {
        let fixed = best_of(&d.answer, &|choice| d.setting.candidates.iter().any(|c| c.fixed && c.choice == *choice));
        // What hangs on an input is asked of choices with one size: the others size themselves by the costs that they are
        // told, and their rates under another cost are not simulated.
        let chosen = fixed.as_ref().and_then(|f| d.setting.candidates.iter().position(|c| c.choice == f.choice));
        let effects = chosen.map_or_else(Vec::new, |chosen| decide::effects(&d.among_fixed, chosen));
        rows.push(row(d, fixed.clone(), &effects, present, &runs_today));
        if let Some(fixed) = fixed {
            moved.push((fixed.speedup, effects));
        }
    }
    let mut choices: Vec<Choice> = Vec::new();
    for choice in rows
        .iter()
        .flat_map(|r| std::iter::once(&r.best).chain([&r.fixed, &r.today].into_iter().flatten().map(|a| &a.choice)))
    {
        if !choices.contains(choice) {
            choices.push(choice.clone());
        }
    }
    choices.sort_by(|a, b| (a.budget, &a.policy).cmp(&(b.budget, &b.policy)));
    let told = |choice: Choice| {
        let engines = engines::settings(&choice, drafter, width(&choice)).to_vec();
        ChoiceSettings { choice, engines }
    };
    Advice {
        schema_version: ADVICE_VERSION,
        deployment: prepared.profiles.words(),
        engine: deployment.engine.key().to_owned(),
        tier: prepared.run.deployment.tier.name().to_owned(),
        hypothetical: (!deployment.tree_attention.native).then(|| deployment.tree_attention.note.clone()),
        present: present.cloned(),
        schedules: schedules(decided, drafter),
        measure_next: sensitivities(&moved),
        settings: choices.into_iter().map(told).collect(),
        notes: notes::notes(prepared, decided, replayed),
        rows,
        refused,
        failed: Vec::new(),
    }
}

/// The best candidate among those that `may`.
fn best_of(a: &Answer, may: &dyn Fn(&Choice) -> bool) -> Option<Alternative> {
    let mut best: Option<Alternative> = None;
    for c in a.candidates.iter().filter(|c| may(&c.choice)) {
        if best.as_ref().is_none_or(|b| c.speedup > b.speedup) {
            let loss = (1.0 - c.speedup / a.speedup).max(0.0);
            best = Some(Alternative { choice: c.choice.clone(), speedup: c.speedup, loss });
        }
    }
    best
}

fn row(
    d: &Decided,
    fixed: Option<Alternative>,
    effects: &[decide::Effect<'_>],
    present: Option<&Choice>,
    runs_today: &dyn Fn(&Choice) -> bool,
) -> AdviceRow {
    let a = &d.answer;
    // What is at stake is an input that may be off, not a setting that the operator knows.
    let off = &d.among_fixed.variants[..d.stated];
    let worst = effects
        .iter()
        .filter(|e| off.iter().any(|v| std::ptr::eq(v, e.variant)))
        .max_by(|x, y| x.loss.total_cmp(&y.loss))
        .filter(|w| w.loss > 0.0);
    let gain = |choice: &Choice| a.candidates.iter().find(|c| c.choice == *choice).map(|c| c.speedup);
    AdviceRow {
        acceptance: a.acceptance.clone(),
        context: a.context,
        concurrency: a.concurrency,
        best: a.best.clone(),
        nodes: a.rows - 1.0,
        tau: a.tau,
        speedup: a.speedup,
        lo: a.lo,
        hi: a.hi,
        left_out: a.left_out.clone(),
        p_best: a.p_best,
        over_present: present.and_then(gain).map(|g| a.speedup / g),
        at_stake: worst.map_or(0.0, |w| w.loss),
        at_stake_input: worst.map(|w| format!("{}, {}", w.variant.input, w.variant.change)),
        fixed,
        today: best_of(a, runs_today),
    }
}

/// Acceptance, context, and the chain of each concurrency.
type Lengths<'a> = (&'a str, u32, Vec<(u32, u32)>);

/// vLLM's chain lengths where they differ by concurrency.
fn schedules(decided: &[Decided], drafter: DrafterKind) -> Vec<ScheduleSetting> {
    let mut groups: Vec<Lengths<'_>> = Vec::new();
    for d in decided {
        let a = &d.answer;
        let chains = a.candidates.iter().filter(|c| matches!(c.choice.policy.as_str(), "chain" | "plain"));
        let Some(best) = chains.max_by(|x, y| x.speedup.total_cmp(&y.speedup)) else { continue };
        let length = (a.concurrency, best.choice.budget);
        match groups.iter_mut().find(|g| (g.0, g.1) == (a.acceptance.as_str(), a.context)) {
            Some(group) => group.2.push(length),
            None => groups.push((&a.acceptance, a.context, vec![length])),
        }
    }
    let flag = |(acceptance, context, mut lengths): Lengths<'_>| {
        lengths.sort_unstable();
        let flags = vllm_schedule(&lengths, drafter)?;
        Some(ScheduleSetting { acceptance: acceptance.to_owned(), context, flags })
    };
    groups.into_iter().filter_map(flag).collect()
}
