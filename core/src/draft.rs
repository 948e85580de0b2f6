//! What a drafter proposes: lattices (block drafters) and conditional drafts behind one [`DraftView`].

mod conditional;
mod drafts;
mod drawn;

pub use conditional::Conditional;
pub use drafts::Drafts;
pub use drawn::{Drawn, draw_row};

use crate::distinct::all_differ;
use crate::error::Fault;
use serde::{Deserialize, Serialize};

/// One proposed token with its log-probability under the drafter (temperature 1).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[repr(C)]
pub struct Candidate {
    /// Token id.
    pub token: u32,
    /// Natural log of the drafter's probability.
    pub logp: f32,
}

/// A node of one tree of the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeRef {
    /// Index of the sequence in the batch.
    pub seq: u32,
    /// Index of the node in its tree.
    pub node: u32,
    /// Depth of the node, 0 = root.
    pub depth: u32,
}

/// How candidates are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Draw {
    /// The most probable tokens, best first.
    #[default]
    Ranked,
    /// Drawn from the drafter's distribution, in draw order (for residual and traversal laws).
    Sampled {
        /// Whether a token may be drawn twice.
        replace: bool,
    },
}

/// What a policy wants from the drafter for one sequence, decided before drafting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ask {
    /// Levels wanted; 0 skips the draft (plain decoding).
    pub depth: u32,
    /// Candidates wanted per row.
    pub width: u32,
    /// Ranked or drawn.
    pub draw: Draw,
}

/// Read access to a round's drafts.
pub trait DraftView {
    /// Candidates for the children of `at`: ranked best first, or in draw order. Empty when the drafter has none there.
    fn children(&self, at: NodeRef) -> &[Candidate];

    /// The same for a whole level, where children depend on depth alone (block drafters): row `depth` (1-based) holds
    /// the candidates of every node at `depth`. `None` for conditional drafts and beyond the last level.
    fn level(&self, seq: u32, depth: u32) -> Option<&[Candidate]>;

    /// The drafter's full distribution over the children of `at` (probabilities, vocabulary long), where it was asked for.
    fn dist(&self, at: NodeRef) -> Option<&[f32]>;

    /// Levels that this draft can answer for sequence `seq`; 0 = skipped.
    fn depth(&self, seq: u32) -> u32;

    /// Why the draft of one sequence is unusable.
    fn fault(&self, _seq: u32) -> Option<Fault> {
        None
    }
}

/// Checks one row of candidates.
///
/// # Errors
/// A NaN or positive-infinite score, scores that are not descending (when `ranked`), or a token that occurs twice (when
/// `distinct`), as [`Fault::Draft`] with `depth`. −∞ is allowed: no tree contains such a node.
pub fn check_row(row: &[Candidate], depth: u32, ranked: bool, distinct: bool) -> Result<(), Fault> {
    let fault = |why: String| Err(Fault::Draft { depth, why });
    if let Some(c) = row.iter().find(|c| c.logp.is_nan() || c.logp == f32::INFINITY) {
        return fault(format!("token {} has log-probability {}", c.token, c.logp));
    }
    if ranked && let Some(w) = row.windows(2).find(|w| w[0].logp < w[1].logp) {
        return fault(format!("token {} ranks before {} but is less probable", w[0].token, w[1].token));
    }
    if distinct && !all_differ(row.iter().map(|c| u64::from(c.token))) {
        let mut ids: Vec<u32> = row.iter().map(|c| c.token).collect();
        ids.sort_unstable();
        if let Some(w) = ids.windows(2).find(|w| w[0] == w[1]) {
            return fault(format!("token {} is listed twice", w[0]));
        }
    }
    Ok(())
}

/// The `width` best entries of a row of log-probabilities, best first; equal values rank by smaller token id, −∞ is left
/// out.
///
/// # Errors
/// A NaN anywhere in the row (`depth` names it).
pub fn top_ranks(logp: &[f32], width: usize, depth: u32, out: &mut Vec<Candidate>) -> Result<(), Fault> {
    if let Some(token) = logp.iter().position(|x| x.is_nan()) {
        return Err(Fault::Draft { depth, why: format!("token {token} has a NaN logit") });
    }
    out.clear();
    let better = |a: &Candidate, b: &Candidate| b.logp.total_cmp(&a.logp).then(a.token.cmp(&b.token));
    // A bounded list kept twice as long as wanted: one selection per `width` newcomers, not one per token.
    let mut floor = f32::NEG_INFINITY;
    for (token, &logp) in logp.iter().enumerate() {
        if logp > floor {
            out.push(Candidate { token: token as u32, logp });
            if out.len() >= width * 2 + 16 {
                out.select_nth_unstable_by(width.saturating_sub(1), better);
                out.truncate(width);
                floor = out.iter().map(|c| c.logp).fold(f32::INFINITY, f32::min);
            }
        }
    }
    out.sort_unstable_by(better);
    out.truncate(width);
    Ok(())
}

/// Drafts of a block drafter: per sequence and depth one row of ranked candidates, whatever the path.
#[derive(Debug, Clone, Default)]
pub struct Lattice {
    seqs: Vec<LatticeSeq>,
    candidates: Vec<Candidate>,
    dists: Vec<f32>,
    vocab: usize,
}

#[derive(Debug, Clone, Default)]
struct LatticeSeq {
    /// Ends of the rows in `candidates`; the first row starts at `begin`.
    begin: usize,
    ends: Vec<usize>,
    /// Where this sequence's full distributions start in `dists`.
    dist: Option<usize>,
    fault: Option<Fault>,
}

impl Lattice {
    /// An empty lattice; `vocab` is the length of the full distributions, where they are kept (else 0).
    #[must_use]
    pub fn new(vocab: usize) -> Self {
        Self { vocab, ..Self::default() }
    }

    /// Starts the rows of the next sequence and returns its index.
    pub fn begin_seq(&mut self) -> u32 {
        self.seqs.push(LatticeSeq { begin: self.candidates.len(), ..LatticeSeq::default() });
        self.seqs.len() as u32 - 1
    }

    /// Adds the next level's row to the sequence begun last. A bad row marks that sequence with a [`Fault`]. `distinct`
    /// is false for draws with replacement, `ranked` for any draw.
    pub fn push_row(&mut self, row: &[Candidate], ranked: bool, distinct: bool) {
        let Some(seq) = self.seqs.last_mut() else { return };
        let depth = seq.ends.len() as u32 + 1;
        if seq.fault.is_none() {
            seq.fault = check_row(row, depth, ranked, distinct).err();
        }
        self.candidates.extend_from_slice(row);
        seq.ends.push(self.candidates.len());
    }

    /// Adds the full distribution of the row that was pushed last.
    pub fn push_dist(&mut self, dist: &[f32]) {
        debug_assert_eq!(dist.len(), self.vocab);
        let Some(seq) = self.seqs.last_mut() else { return };
        seq.dist.get_or_insert(self.dists.len());
        self.dists.extend_from_slice(dist);
    }

    /// Marks the sequence begun last as unusable.
    pub fn fail(&mut self, fault: Fault) {
        if let Some(seq) = self.seqs.last_mut() {
            seq.fault.get_or_insert(fault);
        }
    }
}

impl DraftView for Lattice {
    fn children(&self, at: NodeRef) -> &[Candidate] {
        self.level(at.seq, at.depth + 1).unwrap_or(&[])
    }

    fn level(&self, seq: u32, depth: u32) -> Option<&[Candidate]> {
        let seq = self.seqs.get(seq as usize)?;
        let row = (depth as usize).checked_sub(1)?;
        let end = *seq.ends.get(row)?;
        let begin = if row == 0 { seq.begin } else { seq.ends[row - 1] };
        Some(&self.candidates[begin..end])
    }

    fn dist(&self, at: NodeRef) -> Option<&[f32]> {
        let seq = self.seqs.get(at.seq as usize)?;
        if at.depth as usize >= seq.ends.len() {
            return None;
        }
        let begin = seq.dist? + at.depth as usize * self.vocab;
        self.dists.get(begin..begin + self.vocab)
    }

    fn depth(&self, seq: u32) -> u32 {
        self.seqs.get(seq as usize).map_or(0, |s| s.ends.len() as u32)
    }

    fn fault(&self, seq: u32) -> Option<Fault> {
        self.seqs.get(seq as usize)?.fault.clone()
    }
}
