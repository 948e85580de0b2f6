//! The replay's drafter: recorded rows as a lattice, recorded expansions as conditional drafts.

use super::rows::{BlockRows, Pool};
use super::{Recording, child};
use treeline_core::trace::{Expansion, Position};
use treeline_core::{Ask, Batch, Candidate, Conditional, DraftView, Drafter, Error, Fault, Forest, NodeRef, ROOT};

/// Answers from the rows of a trace.
#[derive(Debug)]
pub struct ReplayDrafter {
    recording: Recording,
    row: Vec<Candidate>,
    pool: Pool,
}

/// A round's drafts, as the recorded drafter gave them.
#[derive(Debug)]
pub enum ReplayDrafts {
    /// Of a block drafter.
    Block(BlockRows),
    /// Of a conditional drafter.
    Conditional {
        /// Rows of the expanded nodes.
        rows: Conditional,
        /// What was asked for, by sequence.
        ask: Vec<Ask>,
    },
}

impl ReplayDrafts {
    #[inline]
    fn view(&self) -> &dyn DraftView {
        match self {
            Self::Block(rows) => rows,
            Self::Conditional { rows, .. } => rows,
        }
    }
}

impl DraftView for ReplayDrafts {
    fn children(&self, at: NodeRef) -> &[Candidate] {
        self.view().children(at)
    }

    fn level(&self, seq: u32, depth: u32) -> Option<&[Candidate]> {
        self.view().level(seq, depth)
    }

    fn dist(&self, _at: NodeRef) -> Option<&[f32]> {
        None
    }

    fn depth(&self, seq: u32) -> u32 {
        self.view().depth(seq)
    }

    fn fault(&self, seq: u32) -> Option<Fault> {
        self.view().fault(seq)
    }
}

impl ReplayDrafter {
    pub(super) fn new(recording: Recording) -> Self {
        Self { recording, row: Vec::new(), pool: Pool::default() }
    }

    fn block(&self, batch: &Batch, ask: &[Ask]) -> BlockRows {
        let mut rows = BlockRows::new(&self.pool);
        for (seq, ask) in batch.iter().zip(ask) {
            rows.begin();
            if ask.depth == 0 {
                continue;
            }
            match self.recording.locate(seq).and_then(|(r, i)| position(&r.positions, i, seq.start)) {
                Err(fault) => rows.fail(fault),
                Ok(p) => {
                    let mut begin = 0;
                    for &end in p.ends.iter().take(ask.depth as usize) {
                        let row = begin..end as usize;
                        begin = row.end;
                        // Both lists were checked to cover the rows, ids where the trace keeps any.
                        rows.push(&p.logp[row.clone()], p.ids.get(row).unwrap_or(&[]), ask.width);
                    }
                }
            }
        }
        rows
    }

    fn conditional(&mut self, batch: &Batch, ask: &[Ask]) -> ReplayDrafts {
        let mut rows = Conditional::new(batch.len(), 0);
        for (i, (seq, ask)) in batch.iter().zip(ask).enumerate() {
            if ask.depth == 0 {
                continue;
            }
            let at = self.recording.locate(seq).and_then(|(r, i)| position(&r.positions, i, seq.start));
            match at {
                Err(fault) => rows.fail(i as u32, fault),
                Ok(p) => {
                    let Some(root) = p.expansions.first() else { continue };
                    rows.set_depth(i as u32, ask.depth.min(self.recording.trace.meta.depth));
                    fill(&mut self.row, &root.logp, &root.ids, ask.width);
                    rows.expand(NodeRef { seq: i as u32, node: ROOT, depth: 0 }, &self.row, None, true, true);
                }
            }
        }
        ReplayDrafts::Conditional { rows, ask: ask.to_vec() }
    }
}

impl Drafter for ReplayDrafter {
    type Features = ();
    type Drafts = ReplayDrafts;

    fn draft(&mut self, batch: &Batch, _features: &(), ask: &[Ask]) -> Result<ReplayDrafts, Error> {
        Ok(match self.recording.trace.meta.conditional {
            true => self.conditional(batch, ask),
            false => ReplayDrafts::Block(self.block(batch, ask)),
        })
    }

    /// # Errors
    /// A node that was not expanded when the trace was recorded: what the drafter would have said there is unknown, and a
    /// result without it would be a guess.
    fn expand(
        &mut self,
        drafts: &mut ReplayDrafts,
        batch: &Batch,
        forest: &Forest,
        wave: &[NodeRef],
    ) -> Result<(), Error> {
        let ReplayDrafts::Conditional { rows, ask } = drafts else { return Ok(()) };
        for &at in wave {
            let Some(seq) = batch.seqs.get(at.seq as usize).filter(|_| forest.fault(at.seq as usize).is_none()) else {
                continue;
            };
            let ask = &ask[at.seq as usize];
            // Levels that nobody asked for, and rows that are there already.
            if at.depth >= ask.depth || rows.expanded(at) {
                continue;
            }
            let lost = |why: String| Error::Engine(format!("request {}, root at {}: {why}", seq.request, seq.start));
            let (request, index) = self.recording.locate(seq).map_err(|fault| lost(fault.to_string()))?;
            let p = position(&request.positions, index, seq.start).map_err(|fault| lost(fault.to_string()))?;
            let e = recorded(p, forest, at).ok_or_else(|| {
                let tree = forest.tree(at.seq as usize);
                let ranks: Vec<u32> = tree.path(at.node).iter().map(|&n| tree.ranks()[n as usize]).collect();
                lost(format!(
                    "the node at ranks {ranks:?} was not expanded when the trace was recorded: raise --beam and --expansions of `treeline trace record`"
                ))
            })?;
            fill(&mut self.row, &e.logp, &e.ids, ask.width);
            rows.expand(at, &self.row, None, true, true);
        }
        Ok(())
    }
}

/// What was drafted behind the emitted token number `index`.
fn position(positions: &[Position], index: usize, start: u32) -> Result<&Position, Fault> {
    positions.get(index).ok_or(Fault::TraceEnd { position: start })
}

/// Candidates of a recorded row, `width` at the most. Without token ids the id of a candidate is its rank.
fn fill(row: &mut Vec<Candidate>, logp: &[f32], ids: &[u32], width: u32) {
    row.clear();
    let id = |rank: usize| ids.get(rank).copied().unwrap_or(rank as u32);
    let candidates = logp.iter().enumerate().map(|(rank, &logp)| Candidate { token: id(rank), logp });
    row.extend(candidates.take(width as usize));
}

/// The recorded expansion of tree node `at`, found by the tokens on its path: a policy's own bookkeeping of ranks cannot
/// lead astray.
fn recorded<'p>(p: &'p Position, forest: &Forest, at: NodeRef) -> Option<&'p Expansion> {
    let tree = forest.tree(at.seq as usize);
    if at.node >= tree.rows() {
        return None;
    }
    let mut expansion = 0;
    for node in tree.path(at.node) {
        let token = tree.tokens()[node as usize];
        let row = p.expansions.get(expansion as usize)?;
        let rank = match row.ids.is_empty() {
            true => token,
            false => row.ids.iter().position(|&id| id == token)? as u32,
        };
        expansion = child(p, expansion, rank)?;
    }
    p.expansions.get(expansion as usize)
}
