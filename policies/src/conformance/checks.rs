//! The checks themselves.

use super::Factory;
use super::scene::{limits, scene};
use super::stage::{Broken, Outcome, Scene, play};
use crate::chain::Chain;
use treeline_core::{Candidate, Fault, TreePolicy};

/// Rounds of a scene whose outcomes are observed.
const ROUNDS: u64 = 6;

pub(super) struct Report<'a> {
    factory: Factory<'a>,
    violations: Vec<String>,
    proposed: u64,
}

/// Damage to one row.
type Damage = fn(&mut Vec<Candidate>);

/// What a scene's faults may be.
#[derive(Clone, Copy, PartialEq)]
enum Allowed {
    None,
    /// Draft faults of these requests.
    Draft(&'static [usize]),
    /// Any fault of these requests, as long as it says why.
    Any(&'static [usize]),
}

impl<'a> Report<'a> {
    pub fn new(factory: Factory<'a>) -> Self {
        Self { factory, violations: Vec::new(), proposed: 0 }
    }

    pub fn finish(mut self) -> Result<(), Vec<String>> {
        if self.proposed == 0 {
            self.violations.push("idle: no scene got a single node".into());
        }
        // One fault of a policy shows in many scenes; the reader needs each line once.
        let mut seen = std::collections::BTreeSet::new();
        self.violations.retain(|v| seen.insert(v.clone()));
        if self.violations.is_empty() { Ok(()) } else { Err(self.violations) }
    }

    fn fail(&mut self, check: &str, what: impl std::fmt::Display) {
        self.violations.push(format!("{check}: {what}"));
    }

    /// Plays a scene with a fresh policy and checks what holds always.
    fn play(&mut self, check: &str, name: &str, scene: &Scene, rounds: u64, allowed: Allowed) -> Vec<Outcome> {
        let mut policy = match (self.factory)(&scene.limits) {
            Ok(policy) => policy,
            Err(e) => {
                self.fail(check, format_args!("{name}: not built: {e}"));
                return Vec::new();
            }
        };
        self.play_with(policy.as_mut(), check, name, scene, rounds, allowed)
    }

    fn play_with(
        &mut self,
        policy: &mut dyn TreePolicy,
        check: &str,
        name: &str,
        scene: &Scene,
        rounds: u64,
        allowed: Allowed,
    ) -> Vec<Outcome> {
        let needs = policy.needs(&scene.limits);
        if scene.conditional && !needs.waves {
            // Such a policy is refused on conditional drafters before a run.
            return Vec::new();
        }
        match play(policy, scene, rounds) {
            Err(Broken::Panic(text)) => self.fail(check, format_args!("{name}: panic: {text}")),
            Err(Broken::Reads) => self.fail("work", format_args!("{name}: it reads the draft without end")),
            Err(Broken::Run(e)) => self.fail("work", format_args!("{name}: {e}")),
            Ok(outcomes) => {
                for outcome in &outcomes {
                    self.outcome(check, name, scene, outcome, allowed);
                    if let Some(ask) = outcome.asks.iter().find(|a| a.depth > needs.depth || a.width > needs.width) {
                        self.fail("needs", format_args!("{name}: asked {ask:?}, declared {needs:?}"));
                    }
                }
                return outcomes;
            }
        }
        Vec::new()
    }

    fn outcome(&mut self, check: &str, name: &str, scene: &Scene, outcome: &Outcome, allowed: Allowed) {
        let most = scene.limits.budget + scene.limits.depth + 1;
        if outcome.waves > most {
            self.fail("work", format_args!("{name}: {} waves, more than budget + depth", outcome.waves));
        }
        for (seq, fault) in outcome.faults.iter().enumerate() {
            let bad = match (fault, allowed) {
                (None, Allowed::Draft(seqs)) if seqs.contains(&seq) => Some("a broken row went unnoticed".to_owned()),
                (None, _) => None,
                (Some(Fault::Draft { .. }), Allowed::Draft(seqs)) if seqs.contains(&seq) => None,
                (Some(_), Allowed::Any(seqs)) if seqs.contains(&seq) => None,
                (Some(Fault::Policy(why)), _) => {
                    self.fail("budget", format_args!("{name}: {why}"));
                    None
                }
                (Some(fault), _) => Some(fault.to_string()),
            };
            if let Some(why) = bad {
                self.fail(check, format_args!("{name}: request {seq}: {why}"));
            }
        }
        for (tree, (player, listed)) in outcome.trees.iter().zip(scene.players.iter().zip(&outcome.listed)) {
            self.proposed += u64::from(tree.nodes());
            if tree.depth() > player.left.saturating_sub(1) || tree.nodes() > scene.limits.budget {
                self.fail("budget", format_args!("{name}: {} nodes, depth {}", tree.nodes(), tree.depth()));
            }
            for (node, listed) in (1..).zip(listed) {
                let (token, score) = (tree.tokens()[node], tree.scores()[node]);
                let right = listed.is_some_and(|c| c.token == token && c.logp > f32::NEG_INFINITY);
                if !right || score.is_nan() || score == f64::NEG_INFINITY {
                    let why =
                        format!("{name}: a node with token {token} and score {score} where the draft has {listed:?}");
                    self.fail("candidates", why);
                }
            }
        }
    }

    pub fn validity(&mut self) {
        for (seed, budget, depth, width) in [(1, 16, 7, 8), (2, 64, 15, 16), (3, 5, 15, 64), (4, 33, 3, 2)] {
            for conditional in [false, true] {
                for levels in [0, 4] {
                    let scene = scene(seed, 3, limits(budget, depth, width), conditional, levels);
                    let name = kind(&scene);
                    self.play("budget", name, &scene, ROUNDS, Allowed::None);
                }
            }
        }
    }

    pub fn determinism(&mut self) {
        for conditional in [false, true] {
            let scene = scene(11, 4, limits(24, 7, 12), conditional, 3);
            let a = self.play("determinism", kind(&scene), &scene, 40, Allowed::None);
            let b = self.play("determinism", kind(&scene), &scene, 40, Allowed::None);
            if a != b {
                self.fail("determinism", format_args!("{}: two runs differ", kind(&scene)));
            }
        }
    }

    pub fn survival(&mut self) {
        let breaks: [(&str, Damage, bool); 7] = [
            ("NaN in a row", |r| r[1].logp = f32::NAN, true),
            ("a row of NaN", |r| r.iter_mut().for_each(|c| c.logp = f32::NAN), true),
            ("+inf in a row", |r| r[0].logp = f32::INFINITY, true),
            ("a token twice", |r| r[2].token = r[0].token, true),
            ("-inf behind two ranks", |r| r[2..].iter_mut().for_each(|c| c.logp = f32::NEG_INFINITY), false),
            ("a row of -inf", |r| r.iter_mut().for_each(|c| c.logp = f32::NEG_INFINITY), false),
            ("one candidate", |r| r.truncate(1), false),
        ];
        for (what, broken, fault) in breaks {
            for conditional in [false, true] {
                for at in [0, 2] {
                    let mut scene = scene(21, 3, limits(24, 5, 8), conditional, 0);
                    scene.players[1].rows.iter_mut().skip(at).for_each(broken);
                    // Whether a conditional or narrow policy meets the broken place is its own affair.
                    let met = fault && at == 0 && !conditional && self.width(&scene) > 2;
                    let allowed = match (fault, met) {
                        (false, _) => Allowed::None,
                        (true, true) => Allowed::Draft(&[1]),
                        (true, false) => Allowed::Any(&[1]),
                    };
                    self.play("survival", &format!("{what}, {}", kind(&scene)), &scene, 2, allowed);
                    scene.silent = true;
                    let name = format!("{what}, {}, not reported by the engine", kind(&scene));
                    // +inf is a probability above 1: only an engine can tell that it is wrong.
                    if what != "+inf in a row" {
                        self.play("survival", &name, &scene, 2, Allowed::Any(&[1]));
                    }
                }
            }
        }
        for rows in [0, 1] {
            let mut scene = scene(22, 3, limits(24, 5, 8), false, 0);
            scene.players[1].rows.truncate(rows);
            self.play("survival", &format!("a draft of {rows} rows"), &scene, 2, Allowed::None);
            scene.players[1].rows.insert(0, Vec::new());
            self.play("survival", "an empty row", &scene, 2, Allowed::None);
        }
    }

    fn width(&self, scene: &Scene) -> u32 {
        (self.factory)(&scene.limits).map_or(0, |p| p.needs(&scene.limits).width)
    }

    pub fn width_one(&mut self) {
        for conditional in [false, true] {
            for (budget, depth) in [(16, 7), (3, 7), (1, 1)] {
                let scene = scene(31, 3, limits(budget, depth, 1), conditional, 0);
                let name = format!("{}, budget {budget}, depth {depth}", kind(&scene));
                let mine = self.play("width-1", &name, &scene, 1, Allowed::None);
                let chain = match play(&mut Chain::default(), &scene, 1) {
                    Ok(chain) => chain,
                    Err(e) => return self.fail("width-1", format_args!("{name}: the chain itself: {e:?}")),
                };
                // Empty where the policy does not run on conditional drafts.
                let pairs = mine.iter().zip(&chain).flat_map(|(a, b)| a.trees.iter().zip(&b.trees));
                for (mine, chain) in pairs {
                    let rows = mine.rows() as usize;
                    let bits = |t: &treeline_core::Tree| t.scores().iter().map(|s| s.to_bits()).collect::<Vec<_>>();
                    let same = rows <= chain.rows() as usize
                        && mine.tokens() == &chain.tokens()[..rows]
                        && mine.parents() == &chain.parents()[..rows]
                        && mine.ranks() == &chain.ranks()[..rows]
                        && bits(mine) == bits(chain)[..rows];
                    if !same {
                        self.fail("width-1", format_args!("{name}: the tree is not the chain's first {rows} rows"));
                    }
                }
            }
        }
    }

    pub fn relabelling(&mut self) {
        for conditional in [false, true] {
            let scene = scene(41, 3, limits(24, 7, 12), conditional, 3);
            let mut other = scene.clone();
            for row in other.players.iter_mut().flat_map(|p| &mut p.rows) {
                row.iter_mut().for_each(|c| c.token = 100_002 - c.token);
            }
            let name = kind(&scene);
            let a = self.play("relabelling", name, &scene, ROUNDS, Allowed::None);
            let b = self.play("relabelling", name, &other, ROUNDS, Allowed::None);
            let trees = |o: &[Outcome]| -> Vec<_> {
                let shape = |t: &treeline_core::Tree| (t.parents().to_vec(), t.ranks().to_vec(), t.scores().to_vec());
                o.iter().flat_map(|o| o.trees.iter().map(shape)).collect()
            };
            if trees(&a) != trees(&b) {
                self.fail("relabelling", format_args!("{name}: the trees depend on token ids"));
            }
        }
    }

    pub fn edges(&mut self) {
        for conditional in [false, true] {
            for (budget, depth, width) in [(0, 7, 8), (1, 7, 8), (1500, 7, 8), (1500, 2, 64), (16, 0, 8), (16, 7, 0)] {
                let scene = scene(51, 3, limits(budget, depth, width), conditional, 0);
                let name = format!("{}, budget {budget}, depth {depth}, width {width}", kind(&scene));
                self.play("edges", &name, &scene, 2, Allowed::None);
            }
            // Requests near their end: nothing left, one token, two; and one at the end of its context.
            let mut scene = scene(52, 5, limits(16, 7, 8), conditional, 0);
            for (player, left) in scene.players.iter_mut().zip([1, 2, 3, 1000, 1000]) {
                player.left = left;
            }
            scene.players[4].start = scene.context - 3;
            self.play("edges", &format!("{}, requests near their end", kind(&scene)), &scene, 2, Allowed::None);
            // Public fault 4: a shorter request of a batch must not be read beyond its length.
            scene.players.truncate(2);
            for (player, rows) in scene.players.iter_mut().zip([3, 7]) {
                (player.left, player.start) = (1000, 5);
                player.rows.truncate(rows);
            }
            self.play("edges", &format!("{}, drafts of 3 and 7 rows", kind(&scene)), &scene, ROUNDS, Allowed::None);
        }
    }

    pub fn draws(&mut self) {
        let mut scene = scene(61, 3, limits(24, 7, 12), false, 0);
        scene.drawn = true;
        let Ok(policy) = (self.factory)(&scene.limits) else { return };
        if !policy.needs(&scene.limits).draws {
            return;
        }
        let mut other = scene.clone();
        let mut mix = super::scene::Mix::new(62);
        for row in scene.players.iter_mut().chain(&mut other.players).flat_map(|p| &mut p.rows) {
            for i in (1..row.len()).rev() {
                row.swap(i, mix.below(i as u64 + 1) as usize);
            }
        }
        let a = self.play("draws", "drawn", &scene, 1, Allowed::None);
        let b = self.play("draws", "drawn", &other, 1, Allowed::None);
        let shapes = |o: &[Outcome]| -> Vec<_> {
            o.iter().flat_map(|o| o.trees.iter().map(|t| (t.parents().to_vec(), t.ranks().to_vec()))).collect()
        };
        if shapes(&a) != shapes(&b) {
            self.fail("draws", "the shape depends on the drawn candidates, which biases every law over draws");
        }
    }
}

fn kind(scene: &Scene) -> &'static str {
    if scene.conditional { "conditional draft" } else { "block draft" }
}
