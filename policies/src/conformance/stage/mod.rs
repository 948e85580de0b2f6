//! A small deterministic engine that plays a [`Scene`] with a policy through the real round protocol.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use treeline_core::law::{Walk, settle};
use treeline_core::round::{RoundSetup, Stage, run_round};
use treeline_core::seams::Admit;
use treeline_core::{
    Ask, Batch, Candidate, Conditional, CostCurve, DraftView, Drafter, Draw, Engine, EngineInfo, Error, Fault, Forest,
    Lattice, Law, Limits, NodeRef, Request, RoundLog, Sampling, Seq, Tree, TreePolicy, Verifier,
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

/// Drafts of a scene, with reads counted.
struct SceneDrafts {
    lattice: Lattice,
    conditional: Option<Conditional>,
    silent: bool,
    reads: Cell<u64>,
    most: u64,
}

impl SceneDrafts {
    fn count(&self) {
        self.reads.set(self.reads.get() + 1);
        // The only way out of a policy's own endless loop; `play` catches it.
        if self.reads.get() > self.most {
            std::panic::panic_any(TOO_MANY_READS);
        }
    }

    fn view(&self) -> &dyn DraftView {
        match &self.conditional {
            Some(c) => c,
            None => &self.lattice,
        }
    }
}

impl DraftView for SceneDrafts {
    fn children(&self, at: NodeRef) -> &[Candidate] {
        self.count();
        self.view().children(at)
    }

    fn level(&self, seq: u32, depth: u32) -> Option<&[Candidate]> {
        self.count();
        self.view().level(seq, depth)
    }

    fn dist(&self, _at: NodeRef) -> Option<&[f32]> {
        None
    }

    fn depth(&self, seq: u32) -> u32 {
        self.view().depth(seq)
    }

    fn fault(&self, seq: u32) -> Option<Fault> {
        if self.silent { None } else { self.view().fault(seq) }
    }
}

struct SceneDrafter {
    scene: Scene,
    asks: Vec<Ask>,
}

impl Drafter for SceneDrafter {
    type Features = ();
    type Drafts = SceneDrafts;

    fn draft(&mut self, batch: &Batch, _features: &(), ask: &[Ask]) -> Result<SceneDrafts, Error> {
        self.asks = ask.to_vec();
        let scene = &self.scene;
        let mut lattice = Lattice::new(0);
        let mut conditional = scene.conditional.then(|| Conditional::new(batch.len(), 0));
        for (seq, (player, ask)) in scene.players.iter().zip(ask).enumerate() {
            let depth = ask.depth.min(player.rows.len() as u32);
            if let Some(conditional) = &mut conditional {
                conditional.set_depth(seq as u32, depth);
                continue;
            }
            lattice.begin_seq();
            for row in &player.rows[..depth as usize] {
                let width = row.len().min(ask.width as usize);
                lattice.push_row(&row[..width], !scene.drawn, true);
            }
        }
        let nodes = u64::from(scene.limits.budget).min(1 << 20) + 1;
        let most = 100_000 + 400 * batch.len() as u64 * nodes * (u64::from(scene.limits.depth) + 2);
        Ok(SceneDrafts { lattice, conditional, silent: scene.silent, reads: Cell::new(0), most })
    }

    fn expand(
        &mut self,
        drafts: &mut SceneDrafts,
        _batch: &Batch,
        forest: &Forest,
        wave: &[NodeRef],
    ) -> Result<(), Error> {
        let Some(conditional) = &mut drafts.conditional else { return Ok(()) };
        for &at in wave {
            let tree = forest.tree(at.seq as usize);
            let width = self.asks[at.seq as usize].width as usize;
            let Some(base) = self.scene.players[at.seq as usize].rows.get(at.depth as usize) else { continue };
            let ranks: Vec<u32> = tree.path(at.node).iter().map(|&n| tree.ranks()[n as usize]).collect();
            let scale = path_scale(&ranks);
            let row: Vec<Candidate> =
                base.iter().take(width).map(|c| Candidate { logp: c.logp * scale, ..*c }).collect();
            conditional.expand(at, &row, None, !self.scene.drawn, true);
        }
        Ok(())
    }
}

/// Accepts along a truth that is a hash of position and depth: mostly rank 0, sometimes another rank, sometimes none.
struct SceneVerifier {
    listed: Vec<Vec<Option<Candidate>>>,
}

impl Verifier for SceneVerifier {
    type Features = ();
    type Verdict = Vec<Walk>;

    fn verify(
        &mut self,
        batch: &Batch,
        forest: &Forest,
        drafts: &dyn DraftView,
        _law: &Law<'_>,
    ) -> Result<Vec<Walk>, Error> {
        self.listed.clear();
        let mut walks = Vec::new();
        for (i, seq) in batch.iter().enumerate() {
            let tree = forest.tree(i);
            let row = |node: u32, depth| drafts.children(NodeRef { seq: i as u32, node: tree.origin(node), depth });
            let place = |n: u32| {
                let parent = tree.parents()[n as usize];
                row(parent, tree.depths()[n as usize] - 1).get(tree.ranks()[n as usize] as usize).copied()
            };
            self.listed.push((1..tree.rows()).map(place).collect());
            let mut walk = Walk { path: Vec::new(), bonus: u32::MAX };
            let mut node = 0;
            loop {
                let depth = walk.path.len() as u32;
                let hash = (seq.start + depth).wrapping_mul(0x85EB_CA6B) >> 24;
                let rank = [0, 0, 0, 1, 0, 2, 0, 9][hash as usize % 8];
                let token = row(node, depth).get(rank).map_or(u32::MAX, |c| c.token);
                match tree.child(node, token) {
                    Some(child) => {
                        walk.path.push(child);
                        node = child;
                    }
                    None => {
                        walk.bonus = token;
                        break;
                    }
                }
            }
            walks.push(walk);
        }
        Ok(walks)
    }

    fn commit(
        &mut self,
        batch: &Batch,
        forest: &Forest,
        walks: Vec<Walk>,
        _features: &mut (),
        log: &mut RoundLog,
    ) -> Result<(), Error> {
        for (i, (seq, walk)) in batch.iter().zip(&walks).enumerate() {
            let fault = forest.fault(i).cloned();
            log.results.push(fault.map_or_else(|| Ok(settle(seq, forest.tree(i), walk)), Err));
        }
        Ok(())
    }
}

struct SceneEngine {
    drafter: SceneDrafter,
    verifier: SceneVerifier,
    features: (),
}

impl Engine for SceneEngine {
    type V = SceneVerifier;
    type D = SceneDrafter;

    fn info(&self) -> EngineInfo {
        let scene = &self.drafter.scene;
        EngineInfo {
            slots: scene.limits.concurrency,
            context: scene.context,
            vocab: u32::MAX,
            depth: scene.limits.depth,
            width: scene.limits.width,
            conditional: scene.conditional,
            draws: true,
        }
    }

    fn admit(&mut self, _slot: u32, _request: &Request, _law: &Law<'_>) -> Result<Admit, Fault> {
        Err(Fault::Request("a scene admits nothing".into()))
    }

    fn release(&mut self, _slot: u32) {}

    fn parts(&mut self) -> (&mut SceneDrafter, &mut SceneVerifier, &mut ()) {
        (&mut self.drafter, &mut self.verifier, &mut self.features)
    }
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
    let drafter = SceneDrafter { scene: scene.clone(), asks: Vec::new() };
    let mut engine = SceneEngine { drafter, verifier: SceneVerifier { listed: Vec::new() }, features: () };
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
