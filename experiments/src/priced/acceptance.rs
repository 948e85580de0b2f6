//! Acceptance sources, from their names to traces.

use super::anchor::{anchored, reachable};
use super::spine::Spine;
use super::{Problem, Profiles};
use crate::config::{AcceptanceKind, AcceptanceSpec, Anchor, Location, PricedRun};
use crate::results::PricedAcceptance;
use crate::run::sha256;
use crate::trace;
use std::ops::Range;
use std::path::Path;
use treeline_core::trace::Trace;
use treeline_sim::accept::{self, Process};
use treeline_sim::batch::{check_stand_in, check_trace};
use treeline_sim::profile::Drafter;

/// What of a source is known before anything is generated.
#[derive(Debug, Clone, PartialEq)]
pub struct Outline {
    /// Its name.
    pub name: String,
    /// SHA-256 of all that determines it.
    pub digest: String,
    /// Tokens of its longest response.
    pub response: u32,
    /// Mean prompt of its requests in tokens; 1 for a process, whose responses stand behind the run's contexts.
    pub prompt: u32,
    /// Whether its drafter is conditional, so that its trees are no prefixes of one order.
    pub conditional: bool,
}

/// A source, its process (where it is one) scaled to its anchor.
#[derive(Debug, Clone, PartialEq)]
pub struct Acceptance {
    /// Names it in results.
    pub name: String,
    /// The process that generates it; `None` for a trace.
    pub process: Option<Process>,
    /// The published τ that the process was scaled to.
    pub anchor: Option<Anchor>,
    /// Whether its uncertain parameters are moved too.
    pub variants: bool,
    /// What it was made from, in words.
    pub source: String,
    /// Its requests, in words.
    pub workload: String,
    /// By index of the request: what scales the effective rows of its trees. Empty for a trace.
    pub overlap: Vec<f32>,
    /// Temperature of the recording; a process has none and counts as greedy.
    pub temperature: f64,
    /// Mean prompt of its requests in tokens.
    pub prompt: u32,
    /// Number of its requests.
    pub requests: usize,
    /// How often the best candidate was right at depth 1, 2, … when those above it were, over all positions.
    pub spine: Vec<f64>,
}

/// The process that a spec names, as `drafter` shows it.
///
/// # Errors
/// No such process, a file that is wrong, a process of another drafter; `at` is the key of the spec.
fn process(name: &str, folder: &Path, drafter: &Drafter, at: &str) -> Result<Process, Problem> {
    let process = accept::process(name, folder).and_then(|p| p.for_drafter(drafter));
    process.map_err(|e| Problem::new(&format!("{at}.process"), &e))
}

impl Acceptance {
    /// Checks a source without generating or reading what is large: its process exists, is of `drafter`, and can be scaled to
    /// its τ. `at` is the key that errors name, `acceptance.0`.
    ///
    /// # Errors
    /// What is wrong, under the key that names it.
    pub fn check(spec: &AcceptanceSpec, folder: &Path, drafter: &Drafter, seed: u64, at: &str) -> Result<(), Problem> {
        let AcceptanceKind::Process { process: name, anchor, .. } = &spec.source else { return Ok(()) };
        let process = process(name, folder, drafter, at)?;
        let Some(anchor) = anchor else { return Ok(()) };
        reachable(&process, anchor, seed).map(drop).map_err(|e| Problem {
            key: format!("{at}.tau"),
            message: e.to_string().lines().collect::<Vec<_>>().join(" "),
            hint: Some(format!(
                "lower τ, or name the budget that it was had with; {} drafts {} tokens",
                drafter.name,
                drafter.depth()
            )),
        })
    }

    /// What is known of a source before anything is generated; a recording is read.
    ///
    /// # Errors
    /// As [`Acceptance::load`]; a recording of other models than those that are priced.
    pub fn outline(
        spec: &AcceptanceSpec,
        run: &PricedRun,
        profiles: &Profiles,
        folder: &Path,
        seed: u64,
        at: &str,
    ) -> Result<Outline, Problem> {
        let name = spec.name.clone();
        match &spec.source {
            AcceptanceKind::Trace { file, stand_in } => {
                let trace = read(file, at)?;
                match stand_in {
                    true => check_stand_in(&trace.meta, &profiles.drafter),
                    false => check_trace(&trace.meta, &profiles.model, &profiles.drafter),
                }
                .map_err(|e| Problem::new(&format!("{at}.trace"), &e))?;
                let bytes = std::fs::read(&file.path).map_err(|e| Problem::new(&format!("{at}.trace"), &e))?;
                Ok(Outline {
                    name,
                    digest: sha256(&bytes),
                    response: longest(&trace),
                    prompt: mean_prompt(&trace),
                    conditional: trace.meta.conditional,
                })
            }
            AcceptanceKind::Process { process: named, anchor, variants } => {
                let text = process(named, folder, &profiles.drafter, at)?.to_toml();
                let text = text.map_err(|e| Problem::new(&format!("{at}.process"), &e))?;
                let response = run.response.unwrap_or(2);
                let size = format!("{anchor:?} {variants} {} {response} {seed}", run.requests);
                let digest = sha256(format!("{text}\n{size}").as_bytes());
                Ok(Outline { name, digest, response, prompt: 1, conditional: false })
            }
        }
    }

    /// Loads or generates a source, and its trace.
    ///
    /// # Errors
    /// A trace that cannot be read or holds nothing; a process of another drafter, or one that cannot be scaled to its anchor.
    pub fn load(
        spec: &AcceptanceSpec,
        run: &PricedRun,
        drafter: &Drafter,
        folder: &Path,
        seed: u64,
        at: &str,
    ) -> Result<(Self, Trace), Problem> {
        match &spec.source {
            AcceptanceKind::Trace { file, stand_in } => {
                let trace = read(file, at)?;
                let what = if *stand_in { "replay of other models' words, as a stand-in," } else { "replay" };
                let source = format!("{what} of {}: {}", file.written, trace.meta.source);
                let (all, most) = (trace.requests.len(), longest(&trace));
                let workload = format!("{all} recorded responses of up to {most} tokens");
                Ok((Self::of(spec, &trace, source, workload), trace))
            }
            AcceptanceKind::Process { .. } => {
                let source = Generated::of(spec, run, drafter, folder, seed, at)?;
                let trace = source.part(0..run.requests)?;
                let mut spine = Spine::default();
                spine.add(&trace);
                Ok((source.acceptance(spec, &spine), trace))
            }
        }
    }

    fn of(spec: &AcceptanceSpec, trace: &Trace, source: String, workload: String) -> Self {
        Self {
            name: spec.name.clone(),
            process: None,
            anchor: None,
            variants: false,
            source,
            workload,
            overlap: Vec::new(),
            // The decimal number that was written for a single-precision one.
            temperature: trace.meta.temperature.to_string().parse().unwrap_or_default(),
            prompt: mean_prompt(trace),
            requests: trace.requests.len(),
            spine: {
                let mut spine = Spine::default();
                spine.add(trace);
                spine.shares()
            },
        }
    }

    /// What results say of it; `conditional` is measured on its trace.
    #[must_use]
    pub fn words(&self) -> PricedAcceptance {
        PricedAcceptance {
            name: self.name.clone(),
            kind: if self.process.is_some() { "process" } else { "trace" }.to_owned(),
            source: self.source.clone(),
            anchor_tau: self.anchor.as_ref().map(|a| a.tau),
            anchor_policy: self.anchor.as_ref().map(|a| a.policy.clone()),
            anchor_budget: self.anchor.as_ref().and_then(|a| a.budget),
            conditional: self.spine.clone(),
        }
    }
}

/// The published τ that a shipped process of this name was scaled to.
fn published(name: &str) -> Option<Anchor> {
    let anchor = accept::anchors().ok()?.into_iter().find(|a| a.key == name)?;
    let policy = match anchor.tree {
        accept::AnchorTree::Chain => "chain",
        accept::AnchorTree::BestFirst => "best-first",
    };
    Some(Anchor { tau: anchor.tau, policy: policy.to_owned(), budget: Some(anchor.nodes) })
}

/// Reads a recording.
fn read(file: &Location, at: &str) -> Result<Trace, Problem> {
    let key = format!("{at}.trace");
    let trace = trace::read(&file.path).map_err(|e| Problem::new(&key, &e))?;
    if trace.requests.is_empty() {
        return Err(Problem { key, message: format!("{} holds no request", file.written), hint: None });
    }
    Ok(trace)
}

fn longest(trace: &Trace) -> u32 {
    trace.requests.iter().map(|r| r.emitted).max().unwrap_or(0)
}

fn mean_prompt(trace: &Trace) -> u32 {
    let sum: u64 = trace.requests.iter().map(|r| u64::from(r.prompt_tokens)).sum();
    (sum / trace.requests.len().max(1) as u64) as u32
}

/// A process, scaled to its anchor, and how much of it is generated.
pub(super) struct Generated {
    process: Process,
    anchor: Option<Anchor>,
    variants: bool,
    requests: u32,
    response: u32,
    seed: u64,
    at: String,
}

impl Generated {
    /// The process of a spec; `at` is its key.
    ///
    /// # Errors
    /// No such process, or none that is a process; one that cannot be scaled to its anchor.
    pub fn of(
        spec: &AcceptanceSpec,
        run: &PricedRun,
        drafter: &Drafter,
        folder: &Path,
        seed: u64,
        at: &str,
    ) -> Result<Self, Problem> {
        let AcceptanceKind::Process { process: name, anchor, variants } = &spec.source else {
            return Err(Problem { key: at.to_owned(), message: "it names no process".to_owned(), hint: None });
        };
        let own = process(name, folder, drafter, at)?;
        let shipped = anchor.is_none().then(|| published(name)).flatten();
        let process = match anchor {
            Some(anchor) => anchored(&own, anchor, seed).map_err(|e| Problem::new(&format!("{at}.tau"), &e))?,
            None => own,
        };
        Ok(Self {
            process,
            anchor: anchor.clone().or(shipped),
            variants: *variants,
            requests: run.requests,
            response: run.response.unwrap_or(2),
            seed,
            at: at.to_owned(),
        })
    }

    /// The requests of some ids.
    ///
    /// # Errors
    /// A process that contradicts itself.
    pub fn part(&self, ids: Range<u32>) -> Result<Trace, Problem> {
        let part = self.process.generate_part(ids, self.response, self.seed);
        part.map_err(|e| Problem::new(&format!("{}.process", self.at), &e))
    }

    /// Once all of it was generated.
    pub fn acceptance(self, spec: &AcceptanceSpec, spine: &Spine) -> Acceptance {
        Acceptance {
            name: spec.name.clone(),
            anchor: self.anchor,
            variants: self.variants,
            source: format!("process {}: {}", self.process.name, self.process.about),
            workload: format!("{} generated responses of {} tokens", self.requests, self.response),
            overlap: overlap(&self.process, self.requests, self.seed),
            temperature: 0.0,
            prompt: 1,
            requests: self.requests as usize,
            spine: spine.shares(),
            process: Some(self.process),
        }
    }
}

/// What scales the effective rows of every request's trees.
pub(super) fn overlap(process: &Process, requests: u32, seed: u64) -> Vec<f32> {
    (0..requests).map(|r| process.novelty(seed, u64::from(r)) as f32).collect()
}
