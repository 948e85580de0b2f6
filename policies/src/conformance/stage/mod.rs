//! A small deterministic engine that plays a [`Scene`] with a policy through the real round protocol.

mod engine;

use engine::SceneEngine;
use std::panic::{AssertUnwindSafe, catch_unwind};
use treeline_core::round::{RoundSetup, Stage, run_round};
use treeline_core::{
    Ask, Batch, Candidate, CostCurve, Draw, Error, Fault, Law, Limits, Sampling, Seq, Tree, TreePolicy,
};

/// One request of a scene.
#[derive(Debug, Clone, PartialEq)]
pub struct Player {
    /// Candidates by depth (row 0 = the root's children), in rank order.
    pub rows: Vec<Vec<Candidate>>,
    /// Absolute position of the root.
    pub start: u32,
    /// Tokens that may still be emitted.
    pub left: u32,
}

/// What a policy is confronted with.
#[derive(Debug, Clone, PartialEq)]
pub struct Scene {
    /// Limits of the run.
    pub limits: Limits,
    /// Positions per sequence.
    pub context: u32,
    /// Whether rows depend on the path: the rows below are then scaled by a hash of the rank path.
    pub conditional: bool,
    /// Whether bad rows go unreported, as from an engine that does not check.
    pub silent: bool,
    /// Whether candidates are drawn (in the order of the rows given).
    pub drawn: bool,
    /// The requests.
    pub players: Vec<Player>,
    /// What a step costs.
    pub cost: CostCurve,
}

/// One round as it was played.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The trees, in batch order.
    pub trees: Vec<Tree>,
    /// For every node of every tree, the candidate it must be: what the draft lists at its parent and rank.
    pub listed: Vec<Vec<Option<Candidate>>>,
    /// Each request's fault.
    pub faults: Vec<Option<Fault>>,
    /// The asks as the drafter saw them.
    pub asks: Vec<Ask>,
    /// Waves of expansion.
    pub waves: u32,
}

/// Why a scene could not be played to its end.
#[derive(Debug, Clone, PartialEq)]
pub enum Broken {
    /// The policy panicked; the message.
    Panic(String),
    /// More reads of the draft than any policy needs.
    Reads,
    /// The round protocol ended the run.
    Run(Error),
}

/// The message that stops a policy that reads for ever.
const TOO_MANY_READS: &str = "too many reads of the draft";

/// By how much a conditional scene scales the log-probabilities below the node at this rank path. It hashes ranks, not
/// tokens, so that relabelled tokens see the same rows.
#[must_use]
pub fn path_scale(ranks: &[u32]) -> f32 {
    let hash = ranks.iter().fold(17u32, |h, r| h.wrapping_mul(0x9E37_79B1).rotate_left(7) ^ (r + 1));
    0.75 + (hash % 64) as f32 / 64.0
}

/// Plays `rounds` rounds of a scene: the same drafts each time, outcomes observed, positions moving on.
///
/// # Errors
/// The first thing that broke.
pub fn play(policy: &mut dyn TreePolicy, scene: &Scene, rounds: u64) -> Result<Vec<Outcome>, Broken> {
    let run = AssertUnwindSafe(|| play_unguarded(policy, scene, rounds));
    catch_unwind(run).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        match text {
            Some(TOO_MANY_READS) => Err(Broken::Reads),
            text => Err(Broken::Panic(text.unwrap_or("no message").to_owned())),
        }
    })
}

fn play_unguarded(policy: &mut dyn TreePolicy, scene: &Scene, rounds: u64) -> Result<Vec<Outcome>, Broken> {
    let mut engine = SceneEngine::new(scene);
    let player = |(i, p): (usize, &Player)| Seq {
        slot: i as u32,
        request: i as u64,
        index: i,
        start: p.start,
        root: 1_000_000 + i as u32,
        left: p.left,
        eos: std::sync::Arc::from([]),
        sampling: Sampling::GREEDY,
        round: 0,
    };
    let mut batch = Batch { seqs: scene.players.iter().enumerate().map(player).collect() };
    let law = if scene.drawn { Law::Residual { replace: false, seed: 0 } } else { Law::Greedy };
    debug_assert_eq!(law.draw() == Draw::Ranked, !scene.drawn);
    let setup = RoundSetup { limits: &scene.limits, law: &law, cost: Some(&scene.cost) };
    let mut stage = Stage::default();
    let mut outcomes = Vec::new();
    for index in 0..rounds {
        let mut trees = Vec::new();
        let mut sink = |view: &treeline_core::RoundView<'_>| trees = view.forest.trees().to_vec();
        let log = run_round(&mut engine, policy, &batch, &setup, &mut stage, index, &mut sink).map_err(Broken::Run)?;
        outcomes.push(Outcome {
            trees,
            listed: engine.verifier.listed.clone(),
            faults: log.entries.iter().map(|e| e.result.as_ref().err().cloned()).collect(),
            asks: engine.drafter.asks.clone(),
            waves: log.waves,
        });
        for seq in &mut batch.seqs {
            seq.start += 1;
            seq.round += 1;
        }
    }
    Ok(outcomes)
}
