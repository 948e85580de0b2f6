//! Negative controls of the conformance suite: each policy here breaks one rule and must fail the check of that name.

use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};
use treeline_core::{Ask, DraftView, Forest, Grow, Limits, Needs, NodeRef, Round, TreePolicy};
use treeline_policies::{Registry, conformance};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Break {
    Nothing,
    Nondeterministic,
    AsksMore,
    OverBudget,
    Twice,
    WrongToken,
    PlacesNan,
    PanicsOnNan,
    SumsInF32,
    ReadsTokenIds,
    PanicsAtDepthZero,
    ReadsBeyondShortRequests,
    ShapesDraws,
    ReadsForEver,
    WavesForEver,
    Idle,
}

static CALLS: AtomicU64 = AtomicU64::new(0);

struct Broken {
    how: Break,
    inner: Box<dyn TreePolicy>,
}

impl TreePolicy for Broken {
    fn kind(&self) -> &str {
        "broken"
    }

    fn needs(&self, limits: &Limits) -> Needs {
        let mut needs = self.inner.needs(limits);
        needs.draws = self.how == Break::ShapesDraws;
        needs
    }

    fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<Ask>) {
        if self.how == Break::PanicsAtDepthZero {
            assert!(round.limits.depth > 0);
        }
        self.inner.ask(round, ask);
        if self.how == Break::AsksMore {
            ask.iter_mut().for_each(|a| a.width += 1);
        }
    }

    fn grow(
        &mut self,
        round: &Round<'_>,
        drafts: &dyn DraftView,
        forest: &mut Forest,
        wave: &mut Vec<NodeRef>,
    ) -> Grow {
        if self.how == Break::Idle {
            return Grow::Done;
        }
        if self.how == Break::WavesForEver {
            wave.push(NodeRef { seq: 0, node: 0, depth: 0 });
            return Grow::Expand;
        }
        if self.inner.grow(round, drafts, forest, wave) == Grow::Expand {
            return Grow::Expand;
        }
        for seq in 0..forest.len() {
            if forest.fault(seq).is_some() || drafts.depth(seq as u32) == 0 {
                continue;
            }
            let Some(row) = drafts.level(seq as u32, 1) else { continue };
            let tree = forest.tree_mut(seq);
            match self.how {
                Break::Nondeterministic if CALLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(7) => tree.truncate(2),
                Break::OverBudget => {
                    tree.open(u32::MAX - 1);
                    while tree.nodes() <= tree.budget() {
                        tree.push(0, 900_000 + tree.rows(), 0, -1.0).unwrap();
                    }
                }
                Break::Twice if tree.nodes() > 1 => {
                    let token = tree.tokens()[1];
                    tree.truncate(2);
                    tree.push(0, token, 0, -1.0).unwrap();
                }
                Break::WrongToken if tree.nodes() > 0 => {
                    tree.truncate(1);
                    tree.push(0, row[0].token + 1, 0, -1.0).unwrap();
                }
                Break::PlacesNan if tree.budget() > 0 => {
                    tree.truncate(1);
                    for (c, rank) in row.iter().zip(0..).take(tree.budget() as usize) {
                        tree.push(0, c.token, rank, f64::from(c.logp)).unwrap();
                    }
                }
                Break::PanicsOnNan => {
                    row.iter().zip(row).for_each(|(a, b)| assert!(a.logp.partial_cmp(&b.logp).is_some()));
                }
                Break::SumsInF32 => {
                    let rows: Vec<_> = (1..tree.rows() as usize)
                        .map(|n| (tree.parents()[n], tree.tokens()[n], tree.ranks()[n], tree.scores()[n] as f32))
                        .collect();
                    tree.truncate(1);
                    for (parent, token, rank, score) in rows {
                        tree.push(parent, token, rank, f64::from(score)).unwrap();
                    }
                }
                Break::ReadsTokenIds if tree.nodes() > 0 => {
                    let (rank, c) =
                        (0..).zip(row).filter(|(_, c)| c.logp.is_finite()).min_by_key(|(_, c)| c.token).unwrap();
                    tree.truncate(1);
                    tree.push(0, c.token, rank, f64::from(c.logp)).unwrap();
                }
                Break::ReadsBeyondShortRequests => {
                    let last = drafts.level(seq as u32, round.limits.depth).unwrap();
                    assert!(last.len() < 100_000);
                }
                Break::ReadsForEver => while drafts.depth(seq as u32) < 1 || drafts.level(seq as u32, 1).is_some() {},
                _ => {}
            }
        }
        Grow::Done
    }
}

fn violations(how: Break) -> Vec<String> {
    let registry = Registry::builtin();
    let factory = |limits: &Limits| {
        let inner = registry.build("best-first", &json!({}), limits)?;
        Ok(Box::new(Broken { how, inner }) as Box<dyn TreePolicy>)
    };
    conformance::check(&factory).err().unwrap_or_default()
}

#[test]
fn each_broken_rule_fails_its_check() {
    let cases = [
        (Break::Nondeterministic, "determinism"),
        (Break::AsksMore, "needs"),
        (Break::OverBudget, "budget"),
        (Break::Twice, "budget"),
        (Break::WrongToken, "candidates"),
        (Break::PlacesNan, "candidates"),
        (Break::PanicsOnNan, "survival"),
        (Break::SumsInF32, "width-1"),
        (Break::ReadsTokenIds, "relabelling"),
        (Break::PanicsAtDepthZero, "edges"),
        (Break::ReadsBeyondShortRequests, "edges"),
        (Break::ShapesDraws, "draws"),
        (Break::ReadsForEver, "work"),
        (Break::WavesForEver, "work"),
        (Break::Idle, "idle"),
    ];
    assert_eq!(violations(Break::Nothing), [] as [String; 0]);
    for (how, name) in cases {
        let found = violations(how);
        assert!(
            found.iter().any(|v| v.starts_with(&format!("{name}: "))),
            "{how:?} must fail `{name}`, got {found:#?}"
        );
    }
}
