//! The replay's verifier: walks each tree along the recorded truth.

use super::{Recording, UNLISTED};
use treeline_core::trace::TraceRequest;
use treeline_core::{Batch, DraftView, End, Error, Fault, Forest, Law, ROOT, RoundLog, Seq, Step, Tree, Verifier};

/// Judges by the truth of a trace, whatever the law: greedy and sample-and-match give the trajectory that was recorded.
#[derive(Debug)]
pub struct ReplayVerifier {
    recording: Recording,
    /// Steps and a list of results of rounds that are over.
    spare: Vec<Step>,
    results: ReplayVerdict,
}

/// One result per sequence.
pub type ReplayVerdict = Vec<Result<Step, Fault>>;

impl ReplayVerifier {
    pub(super) fn new(recording: Recording) -> Self {
        Self { recording, spare: Vec::new(), results: Vec::new() }
    }

    fn judge(&mut self, seq: &Seq, tree: &Tree) -> Result<Step, Fault> {
        let (request, root) = self.recording.locate(seq)?;
        let mut step = self.spare.pop().unwrap_or_default();
        let mut node = ROOT;
        loop {
            let depth = step.emitted.len();
            let came = root + depth + 1;
            if came >= request.emitted as usize {
                return Err(Fault::TraceEnd { position: seq.start + depth as u32 + 1 });
            }
            let token = truth(request, root, depth, seq, tree, node)?;
            let child = tree.child(node, token);
            step.emitted.push(token);
            step.path.extend(child);
            // By its place, not its id: a rank code may occur anywhere in a response.
            if came + 1 == request.emitted as usize && request.end == End::Eos {
                step.end = Some(End::Eos);
            } else if came + 1 == request.emitted as usize && request.end == End::Context && self.recording.is_placed()
            {
                // Where the response is placed the context is not full, but nothing more is on record.
                step.end = Some(End::Context);
            } else if step.emitted.len() as u32 >= seq.left {
                step.end = Some(End::Length);
            }
            match child {
                Some(child) if step.end.is_none() => node = child,
                _ => return Ok(step),
            }
        }
    }
}

/// The token that came `depth` + 1 places behind the root: its id, or its rank in the drafter's row.
fn truth(request: &TraceRequest, root: usize, depth: usize, seq: &Seq, tree: &Tree, node: u32) -> Result<u32, Fault> {
    if let Some(&token) = request.tokens.get(root + depth + 1) {
        return Ok(token);
    }
    match request.positions.get(root).and_then(|p| p.truth.get(depth)) {
        Some(rank) => Ok(rank.unwrap_or(UNLISTED)),
        // Behind the drafter's last level there is nothing to compare with; a node with children has a row on record.
        None if tree.children(node).next().is_none() => Ok(UNLISTED),
        None => Err(Fault::TraceEnd { position: seq.start + depth as u32 + 1 }),
    }
}

impl Verifier for ReplayVerifier {
    type Features = ();
    type Verdict = ReplayVerdict;

    fn verify(
        &mut self,
        batch: &Batch,
        forest: &Forest,
        _drafts: &dyn DraftView,
        _law: &Law<'_>,
    ) -> Result<ReplayVerdict, Error> {
        let mut results = std::mem::take(&mut self.results);
        for (i, seq) in batch.iter().enumerate() {
            results.push(match forest.fault(i) {
                Some(fault) => Err(fault.clone()),
                None => self.judge(seq, forest.tree(i)),
            });
        }
        Ok(results)
    }

    fn commit(
        &mut self,
        _batch: &Batch,
        _forest: &Forest,
        mut verdict: ReplayVerdict,
        _features: &mut (),
        log: &mut RoundLog,
    ) -> Result<(), Error> {
        log.results.append(&mut verdict);
        self.results = verdict;
        Ok(())
    }

    fn recycle(&mut self, steps: &mut Vec<Step>) {
        for mut step in steps.drain(..) {
            step.emitted.clear();
            step.path.clear();
            step.truth_ranks.clear();
            step.end = None;
            self.spare.push(step);
        }
    }
}
