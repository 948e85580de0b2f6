//! The engine that a scene is played on: drafts as the scene says, and a target that accepts along a truth of its own.

use super::{Scene, TOO_MANY_READS, path_scale};
use std::cell::Cell;
use treeline_core::law::{Walk, settle};
use treeline_core::seams::Admit;
use treeline_core::{
    Ask, Batch, Candidate, Conditional, DraftView, Drafter, Engine, EngineInfo, Error, Fault, Forest, Lattice, Law,
    NodeRef, Request, RoundLog, Verifier,
};

/// Drafts of a scene, with reads counted.
pub(super) struct SceneDrafts {
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

/// The drafter, and what it was asked last.
pub(super) struct SceneDrafter {
    scene: Scene,
    pub asks: Vec<Ask>,
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
pub(super) struct SceneVerifier {
    pub listed: Vec<Vec<Option<Candidate>>>,
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

/// Both.
pub(super) struct SceneEngine {
    pub drafter: SceneDrafter,
    pub verifier: SceneVerifier,
    features: (),
}

impl SceneEngine {
    /// On a scene of its own.
    pub fn new(scene: &Scene) -> Self {
        let drafter = SceneDrafter { scene: scene.clone(), asks: Vec::new() };
        Self { drafter, verifier: SceneVerifier { listed: Vec::new() }, features: () }
    }
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
