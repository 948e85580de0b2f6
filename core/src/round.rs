//! The round protocol: draft → tree → verify → walk → commit, staged, for a batch.

use crate::batch::{Batch, Caps, Limits, Seq};
use crate::draft::{Ask, DraftView, Draw, NodeRef};
use crate::error::{Error, Fault};
use crate::forest::Forest;
use crate::law::{Law, Step};
use crate::log::{Entry, Phase, RoundLog};
use crate::seams::{Drafter, Engine, EngineInfo, Grow, Needs, Round, StepCost, TreePolicy, Verifier};

/// What an observer of a run sees after each round, before the batch moves on.
pub struct RoundView<'a> {
    /// The outcome.
    pub log: &'a RoundLog,
    /// The batch as it was drafted for.
    pub batch: &'a Batch,
    /// The trees.
    pub forest: &'a Forest,
    /// The drafts, where there are some to look at.
    pub drafts: Option<&'a dyn DraftView>,
}

/// Working memory of the staged round.
#[derive(Default)]
pub struct Stage {
    caps: Vec<Caps>,
    ask: Vec<Ask>,
    wave: Vec<NodeRef>,
    forest: Forest,
    /// Memory of the last round's log and of its steps.
    log: RoundLog,
    steps: Vec<Step>,
}

impl Stage {
    /// Takes back the memory of a round that is over.
    pub fn reuse<E: Engine>(&mut self, engine: &mut E, mut log: RoundLog) {
        self.steps.extend(log.entries.drain(..).filter_map(|entry| entry.result.ok()));
        engine.parts().1.recycle(&mut self.steps);
        self.steps.clear();
        self.log = log;
    }

    /// An empty log for round `index`.
    fn begin(&mut self, index: u64) -> RoundLog {
        let RoundLog { mut entries, mut experts, mut results, .. } = std::mem::take(&mut self.log);
        entries.clear();
        experts.clear();
        results.clear();
        RoundLog { round: index, entries, experts, results, ..RoundLog::default() }
    }
}

/// What a round is run with.
#[derive(Clone, Copy)]
pub struct RoundSetup<'a> {
    /// Limits of the run.
    pub limits: &'a Limits,
    /// How trees are judged.
    pub law: &'a Law<'a>,
    /// What a step costs, for policies that ask.
    pub cost: Option<&'a dyn StepCost>,
}

/// Checks, before a run, that policy, law and engine fit together.
///
/// # Errors
/// [`Error::Refused`] with what does not fit and what to change.
pub fn check_fit(policy: &str, needs: &Needs, law: &Law<'_>, info: &EngineInfo, cost: bool) -> Result<(), Error> {
    let refuse = |why: String| Err(Error::Refused(why));
    if law.draw() != Draw::Ranked {
        if !needs.draws {
            return refuse(format!(
                "policy `{policy}` builds trees of ranked candidates only; law `{}` verifies drawn ones: use `sample-match`, or a policy that accepts draws (chain, top-k with static widths, sequoia)",
                law.kind()
            ));
        }
        if !info.draws {
            return refuse(format!("this drafter cannot draw candidates, which law `{}` needs", law.kind()));
        }
    }
    if info.conditional && !needs.waves {
        return refuse(format!(
            "policy `{policy}` plans whole trees at once, a conditional drafter answers wave by wave: use a block drafter"
        ));
    }
    if needs.cost && !cost {
        return refuse(format!("policy `{policy}` needs a step cost: name one under `cost`"));
    }
    Ok(())
}

/// What `seq` may still use: nodes fit into the KV rows behind the root, accepted tokens and the bonus into what is left.
#[must_use]
pub fn caps(seq: &Seq, limits: &Limits, context: u32) -> Caps {
    let rows_left = context.saturating_sub(seq.start).saturating_sub(1);
    let nodes = limits.budget.min(rows_left);
    let depth = limits.depth.min(seq.left.saturating_sub(1)).min(nodes);
    Caps { nodes: if depth == 0 { 0 } else { nodes }, depth }
}

/// Runs one staged (or fused) round over `batch` and calls `sink` with its outcome.
///
/// # Errors
/// What ends the whole run. A single request's failure is an `Err` entry of the log.
pub fn run_round<E: Engine>(
    engine: &mut E,
    policy: &mut dyn TreePolicy,
    batch: &Batch,
    setup: &RoundSetup<'_>,
    stage: &mut Stage,
    index: u64,
    sink: &mut dyn FnMut(&RoundView<'_>),
) -> Result<RoundLog, Error> {
    let info = engine.info();
    let mut log = stage.begin(index);
    let Stage { caps: all_caps, ask, wave, forest, .. } = stage;
    all_caps.clear();
    all_caps.extend(batch.iter().map(|s| caps(s, setup.limits, info.context)));
    forest.reset(batch, all_caps);

    let round = Round { index, batch, caps: all_caps, limits: setup.limits, draw: setup.law.draw(), cost: setup.cost };

    if let Some(program) = policy.program()
        && let Some(drafts) = engine.fused(&round, &program, setup.law, forest, &mut log)?
    {
        engine.mark(Phase::Host);
        return finish(engine, policy, &round, forest, &drafts, log, sink);
    }

    ask.clear();
    policy.ask(&round, ask);
    if ask.len() != batch.len() {
        let why = format!("policy `{}` gave {} asks for {} sequences", policy.kind(), ask.len(), batch.len());
        return Err(Error::Engine(why));
    }
    for (ask, cap) in ask.iter_mut().zip(all_caps.iter()) {
        ask.depth = ask.depth.min(cap.depth);
        ask.width = ask.width.min(info.width);
        ask.draw = round.draw;
    }

    engine.mark(Phase::Draft);
    let (drafter, _, features) = engine.parts();
    let mut drafts = drafter.draft(batch, features, ask)?;
    fail_bad_drafts(&drafts, forest);
    engine.mark(Phase::Tree);
    loop {
        wave.clear();
        match policy.grow(&round, &drafts, forest, wave) {
            Grow::Done => break,
            Grow::Expand => {
                log.waves += 1;
                // A wave adds at least one level or one beam of a level; twice the depth and budget is beyond any use.
                if log.waves > 2 * (setup.limits.depth + setup.limits.budget) + 4 {
                    return Err(Error::Waves { policy: policy.kind().to_owned(), waves: log.waves });
                }
                engine.mark(Phase::Draft);
                engine.parts().0.expand(&mut drafts, batch, forest, wave)?;
                fail_bad_drafts(&drafts, forest);
                engine.mark(Phase::Tree);
            }
        }
    }
    let duplicates = round.draw == Draw::Sampled { replace: true };
    for seq in 0..forest.len() {
        if let Err(e) = forest.tree(seq).check(duplicates) {
            forest.fail(seq, Fault::Policy(format!("{}: {e}", policy.kind())));
        }
    }

    engine.mark(Phase::Verify);
    let verdict = engine.parts().1.verify(batch, forest, &drafts, setup.law)?;
    engine.mark(Phase::Commit);
    let (_, verifier, features) = engine.parts();
    verifier.commit(batch, forest, verdict, features, &mut log)?;
    engine.mark(Phase::Host);
    finish(engine, policy, &round, forest, &drafts, log, sink)
}

/// The end of a round, staged or fused: entries, times, and who wants to know.
fn finish<E: Engine>(
    engine: &mut E,
    policy: &mut dyn TreePolicy,
    round: &Round<'_>,
    forest: &Forest,
    drafts: &dyn DraftView,
    mut log: RoundLog,
    sink: &mut dyn FnMut(&RoundView<'_>),
) -> Result<RoundLog, Error> {
    fill_entries(&mut log, round.batch, forest, round.caps, drafts)?;
    log.times = engine.take_times();
    sink(&RoundView { log: &log, batch: round.batch, forest, drafts: Some(drafts) });
    policy.observe(&log);
    Ok(log)
}

fn fail_bad_drafts(drafts: &dyn DraftView, forest: &mut Forest) {
    for seq in 0..forest.len() {
        if forest.fault(seq).is_none()
            && let Some(fault) = drafts.fault(seq as u32)
        {
            forest.fail(seq, fault);
        }
    }
}

/// Moves the engine's results into entries and looks up, per depth, the rank of the token that came.
fn fill_entries(
    log: &mut RoundLog,
    batch: &Batch,
    forest: &Forest,
    caps: &[Caps],
    drafts: &dyn DraftView,
) -> Result<(), Error> {
    if log.results.len() != batch.len() {
        let why = format!("commit gave {} results for {} sequences", log.results.len(), batch.len());
        return Err(Error::Engine(why));
    }
    let mut results = std::mem::take(&mut log.results);
    for (i, mut result) in results.drain(..).enumerate() {
        let (seq, tree) = (&batch.seqs[i], forest.tree(i));
        if let Ok(step) = &mut result {
            step.truth_ranks.clear();
            let mut node = 0;
            for (depth, &token) in step.emitted.iter().enumerate().take(drafts.depth(i as u32) as usize) {
                let at = NodeRef { seq: i as u32, node: tree.origin(node), depth: depth as u32 };
                let row = drafts.children(at);
                step.truth_ranks.push(row.iter().position(|c| c.token == token).map(|r| r as u32));
                match step.path.get(depth) {
                    Some(&next) => node = next,
                    None => break,
                }
            }
        }
        log.entries.push(Entry {
            request: seq.request,
            index: seq.index,
            slot: seq.slot,
            start: seq.start,
            step: seq.round,
            asked: caps[i].nodes,
            rows: tree.rows(),
            depth: tree.depth(),
            expected: tree.expected_accepted(),
            result,
        });
    }
    log.results = results;
    Ok(())
}
