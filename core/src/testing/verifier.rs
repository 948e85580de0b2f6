//! The scripted engine's verifier.

use super::script::{Script, Seeded};
use crate::batch::Batch;
use crate::draft::DraftView;
use crate::error::{Error, Fault};
use crate::forest::Forest;
use crate::law::chance::{Chance, Keyed, Site};
use crate::law::{Case, Law, Rows, Scratch, Step, Walk, judge, judge_by, settle};
use crate::log::RoundLog;
use crate::mask::AncestorMask;
use crate::seams::Verifier;
use crate::stream::Purpose;

/// Residual draws by the key of draft draws: correlated, hence biased.
struct OneKey(Keyed);

impl Chance for OneKey {
    fn coin(&mut self, site: Site, token: u32, p: f64) -> bool {
        self.0.coin(site, token, p)
    }

    fn pick(&mut self, site: Site, scores: &[f64]) -> Option<u32> {
        let purpose = match site.purpose {
            Purpose::Residual => Purpose::DraftDraw,
            other => other,
        };
        self.0.pick(Site { purpose, ..site }, scores)
    }
}

/// [`judge`], or what a seeded fault makes of it.
fn judge_script(seeded: Seeded, law: &Law<'_>, case: &Case<'_>, scratch: &mut Scratch) -> Result<Walk, Fault> {
    let Case { at, seq, tree, rows, drafts } = *case;
    match seeded {
        Seeded::OneKey => {
            let mut chance = OneKey(Keyed { seed: law.seed(), request: seq.request, round: seq.round });
            judge_by(law, &mut chance, case, scratch)
        }
        Seeded::Greedy => judge(&Law::Greedy, at, seq, tree, rows, drafts, scratch),
        Seeded::NanIsZero => match judge(law, at, seq, tree, rows, drafts, scratch) {
            Err(Fault::TargetLogits { .. }) => Ok(Walk { path: Vec::new(), bonus: 0 }),
            other => other,
        },
        _ => judge(law, at, seq, tree, rows, drafts, scratch),
    }
}

/// The verifier: a KV cache of tokens, read through each tree's ancestor mask.
#[derive(Debug)]
pub struct MockVerifier {
    pub(super) script: Script,
    /// Token in each KV slot, by sequence slot.
    pub(super) kv: Vec<Vec<u32>>,
    /// Target forwards so far.
    pub(super) calls: u64,
}

/// The rows of one tree within those of the whole pass.
struct TreeRows<'a> {
    all: &'a [Vec<f32>],
    first: usize,
}

impl Rows for TreeRows<'_> {
    fn logits(&self, row: u32) -> &[f32] {
        &self.all[(self.first + row as usize) % self.all.len()]
    }
}

impl MockVerifier {
    /// One forward over the rows of all trees: puts their tokens behind the cache and gives each row's logits.
    fn forward(&mut self, batch: &Batch, forest: &Forest) -> Vec<Vec<f32>> {
        let longest = batch.iter().map(|s| s.start).max().unwrap_or(0) as usize;
        let mut mask = AncestorMask::default();
        let mut all = Vec::new();
        for (seq, tree) in batch.iter().zip(forest.trees()) {
            let (kv, start) = (&mut self.kv[seq.slot as usize], seq.start as usize);
            kv.truncate(start);
            kv.extend(tree.tokens());
            mask.rebuild(tree.parents());
            for row in 0..tree.rows() as usize {
                let seen: Vec<usize> = match self.script.seeded {
                    Seeded::Causal => (0..=row).collect(),
                    Seeded::Bits32 => (0..=row).filter(|&c| mask.sees(row, c % 32)).collect(),
                    _ => mask.columns(row).collect(),
                };
                let mut tokens = kv[..start].to_vec();
                if self.script.seeded == Seeded::Padded {
                    tokens.resize(longest, 0);
                }
                tokens.extend(seen.into_iter().map(|column| kv[start + column]));
                let place = match self.script.seeded {
                    Seeded::SlotPositions => row as u32,
                    _ => tree.depths()[row],
                };
                all.push(self.script.logits(seq.request, &tokens, seq.start + place));
            }
        }
        all
    }
}

impl Verifier for MockVerifier {
    type Features = Vec<Vec<u32>>;
    type Verdict = Vec<Result<Step, Fault>>;

    fn verify(
        &mut self,
        batch: &Batch,
        forest: &Forest,
        drafts: &dyn DraftView,
        law: &Law<'_>,
    ) -> Result<Self::Verdict, Error> {
        self.calls += 1;
        let seeded = self.script.seeded;
        let all = self.forward(batch, forest);
        let mut scratch = Scratch::default();
        let (mut first, mut bonus) = (0, None);
        let verdicts = batch.iter().zip(forest.trees()).enumerate().map(|(at, (seq, tree))| {
            let own = match seeded {
                Seeded::Stride => at * forest.tree(0).rows() as usize,
                Seeded::OffByOne => first + 1,
                _ => first,
            };
            first += tree.rows() as usize;
            if let Some(fault) = forest.fault(at) {
                return Err(fault.clone());
            }
            let rows = TreeRows { all: &all, first: own };
            let case = Case { at: at as u32, seq, tree, rows: &rows, drafts };
            let mut walk = judge_script(seeded, law, &case, &mut scratch)?;
            let first_bonus = *bonus.get_or_insert(walk.bonus);
            if seeded == Seeded::BonusStride {
                walk.bonus = first_bonus;
            }
            Ok(settle(seq, tree, &walk))
        });
        Ok(verdicts.collect())
    }

    fn commit(
        &mut self,
        batch: &Batch,
        forest: &Forest,
        verdict: Self::Verdict,
        features: &mut Vec<Vec<u32>>,
        log: &mut RoundLog,
    ) -> Result<(), Error> {
        for (at, (seq, result)) in batch.iter().zip(verdict).enumerate() {
            if let Ok(step) = &result {
                let kv = &mut self.kv[seq.slot as usize];
                if self.script.seeded != Seeded::Scattered {
                    let tree = forest.tree(at);
                    kv.truncate(seq.start as usize + 1);
                    kv.extend(step.path.iter().map(|&node| tree.tokens()[node as usize]));
                }
                kv.truncate(seq.start as usize + 1 + step.path.len());
                features[seq.slot as usize].clone_from(kv);
            }
            log.results.push(result);
        }
        Ok(())
    }
}
