//! Measured acceptance per depth and rank: Beta posteriors with decay, and drafts calibrated by them.

use treeline_core::{Candidate, DraftView, Fault, NodeRef, Tree};

/// Posterior of "the target's token at this depth has this rank", given that the path above was accepted.
///
/// Per cell the prior is a Beta distribution with the drafter's own mean claim m as its mean and `prior` pseudo-hits:
/// Beta(s, s(1 − m)/m). With H hits and claims summing to Q, the posterior mean is (H + s)/(Q + s) · m, so
/// (H + s)/(Q + s) is the factor that turns a claim q into q̂; 1 with no data.
#[derive(Debug)]
pub(crate) struct Calibration {
    ranks: usize,
    keep: f64,
    prior: f64,
    /// By depth and rank; ranks from `ranks − 1` on share the last cell.
    hits: Vec<f64>,
    claims: Vec<f64>,
    /// ln of the factor, in f32 since it is added to f32 log-probabilities.
    ln_factor: Vec<f32>,
}

impl Calibration {
    pub fn new(depth: u32, ranks: u32, memory: f64, prior: f64) -> Self {
        let cells = (depth * ranks) as usize;
        Self {
            ranks: ranks as usize,
            keep: 1.0 - 1.0 / memory,
            prior,
            hits: vec![0.0; cells],
            claims: vec![0.0; cells],
            ln_factor: vec![0.0; cells],
        }
    }

    /// Takes in one outcome at `depth` (0 = the root's children): the drafter's own row, and the true token's rank in it,
    /// `None` when it was not listed.
    pub fn observe(&mut self, depth: usize, row: &[Candidate], rank: Option<u32>) {
        let cells = depth * self.ranks..(depth + 1) * self.ranks;
        if cells.end > self.hits.len() {
            return;
        }
        let cell = |rank: usize| cells.start + rank.min(self.ranks - 1);
        for i in cells.clone() {
            self.hits[i] *= self.keep;
            self.claims[i] *= self.keep;
        }
        for (r, c) in row.iter().enumerate() {
            if !c.logp.is_nan() {
                self.claims[cell(r)] += f64::from(c.logp).exp();
            }
        }
        if let Some(rank) = rank {
            self.hits[cell(rank as usize)] += 1.0;
        }
        for i in cells {
            self.ln_factor[i] = ((self.hits[i] + self.prior) / (self.claims[i] + self.prior)).ln() as f32;
        }
    }

    /// Appends the calibrated form of `row`: factors applied, never above 1 and never rising with rank.
    fn apply(&self, depth: usize, row: &[Candidate], out: &mut Vec<Candidate>) {
        let begin = (depth * self.ranks).min(self.ln_factor.len().saturating_sub(self.ranks));
        let factors = &self.ln_factor[begin..];
        let mut above = f32::INFINITY;
        for (rank, c) in row.iter().enumerate() {
            let ln = factors.get(rank.min(self.ranks - 1)).copied().unwrap_or(0.0);
            // `min` would turn NaN into a number; it must stay and end the row in the search.
            let logp = if ln == 0.0 || c.logp.is_nan() { c.logp } else { (c.logp + ln).min(0.0).min(above) };
            above = logp;
            out.push(Candidate { token: c.token, logp });
        }
    }
}

/// Calibrated rows of one sequence: by depth for a block draft, by node for a conditional one.
#[derive(Debug, Default)]
struct Rows {
    block: bool,
    ranges: Vec<(u32, u32)>,
}

/// Working memory of [`Calibrated`].
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    seqs: Vec<Rows>,
    rows: Vec<Candidate>,
    /// The drafter's own rows, in the same places.
    raw: Vec<Candidate>,
}

impl Buffer {
    pub fn begin(&mut self, seqs: usize) {
        self.seqs.resize_with(self.seqs.len().max(seqs), Rows::default);
        for rows in &mut self.seqs {
            rows.ranges.clear();
        }
        self.rows.clear();
        self.raw.clear();
    }

    /// The drafter's own row below the node that was number `node` while the tree was grown; `depth` is the node's.
    pub fn raw(&self, seq: u32, node: u32, depth: u32) -> &[Candidate] {
        let Some(rows) = self.seqs.get(seq as usize) else { return &[] };
        let at = if rows.block { depth + 1 } else { node };
        rows.ranges.get(at as usize).map_or(&[], |&(begin, end)| &self.raw[begin as usize..end as usize])
    }

    /// Calibrates what sequence `seq` has learnt since the last call. `tree` is its working tree.
    pub fn update(&mut self, seq: u32, tree: &Tree, drafts: &dyn DraftView, calibration: &Calibration) {
        let mut add = |ranges: &mut Vec<(u32, u32)>, at: usize, depth: usize, row: &[Candidate]| {
            if ranges.len() <= at {
                ranges.resize(at + 1, (0, 0));
            }
            if ranges[at] == (0, 0) {
                let begin = self.rows.len() as u32;
                calibration.apply(depth, row, &mut self.rows);
                self.raw.extend_from_slice(row);
                ranges[at] = (begin, self.rows.len() as u32);
            }
        };
        let rows = &mut self.seqs[seq as usize];
        let depth = drafts.depth(seq).min(tree.depth_limit());
        rows.block = depth > 0 && drafts.level(seq, 1).is_some();
        if rows.block {
            for level in 1..=depth {
                add(&mut rows.ranges, level as usize, level as usize - 1, drafts.level(seq, level).unwrap_or(&[]));
            }
            return;
        }
        for (node, &depth) in tree.depths().iter().enumerate() {
            let row = drafts.children(NodeRef { seq, node: node as u32, depth });
            if !row.is_empty() {
                add(&mut rows.ranges, node, depth as usize, row);
            }
        }
    }
}

/// Drafts with calibrated log-probabilities; everything else is the original's.
pub(crate) struct Calibrated<'a> {
    pub drafts: &'a dyn DraftView,
    pub buffer: &'a Buffer,
}

impl Calibrated<'_> {
    fn row(&self, seq: u32, at: u32) -> &[Candidate] {
        let range = self.buffer.seqs[seq as usize].ranges.get(at as usize);
        range.map_or(&[], |&(begin, end)| &self.buffer.rows[begin as usize..end as usize])
    }
}

impl DraftView for Calibrated<'_> {
    fn children(&self, at: NodeRef) -> &[Candidate] {
        let block = self.buffer.seqs[at.seq as usize].block;
        self.row(at.seq, if block { at.depth + 1 } else { at.node })
    }

    fn level(&self, seq: u32, depth: u32) -> Option<&[Candidate]> {
        self.buffer.seqs[seq as usize].block.then(|| self.row(seq, depth))
    }

    fn dist(&self, at: NodeRef) -> Option<&[f32]> {
        self.drafts.dist(at)
    }

    fn depth(&self, seq: u32) -> u32 {
        self.drafts.depth(seq)
    }

    fn fault(&self, seq: u32) -> Option<Fault> {
        self.drafts.fault(seq)
    }
}
