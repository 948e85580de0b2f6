//! Multi-round residual rejection (SpecInfer with replacement, Sequoia without).

use super::{Rows, Walk};
use crate::batch::Seq;
use crate::draft::{DraftView, NodeRef};
use crate::error::Fault;
use crate::sampling;
use crate::stream::{Key, Purpose};
use crate::tree::{ROOT, Tree};

/// Walks from the root: at each node its children are tried in index order (= draw order), each accepted with probability
/// min(1, p/q); on a rejection p becomes the normalised relu(p − q), and without replacement q loses the rejected token.
pub(super) fn walk(
    replace: bool,
    seed: u64,
    at: u32,
    seq: &Seq,
    tree: &Tree,
    rows: &dyn Rows,
    drafts: &dyn DraftView,
) -> Result<Walk, Fault> {
    let mut path = Vec::new();
    let mut node = ROOT;
    let (mut p, mut q): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    'descend: loop {
        let depth = path.len() as u32;
        let key = |purpose, node| Key {
            seed,
            purpose,
            request: seq.request,
            position: seq.start + depth + 1,
            round: seq.round,
            node,
        };
        sampling::target_dist(rows.logits(node), &seq.sampling, node, &mut p)?;
        let mut children = tree.children(node).peekable();
        if children.peek().is_some() {
            let dist = drafts.dist(NodeRef { seq: at, node, depth }).ok_or_else(|| Fault::Draft {
                depth: depth + 1,
                why: "the law needs the drafter's full distribution and there is none".into(),
            })?;
            q.clear();
            q.extend(dist.iter().map(|&x| f64::from(x)));
            normalise(&mut q);
        }
        for child in children {
            let token = tree.tokens()[child as usize];
            let (pt, qt) = (p[token as usize], q[token as usize]);
            let coin = key(Purpose::Coin, child).stream().uniform(token);
            // A uniform in (0, 1) is never 0: a token that the target excludes is never accepted.
            if coin * qt < pt {
                path.push(child);
                node = child;
                continue 'descend;
            }
            for (p, &q) in p.iter_mut().zip(&q) {
                *p = (*p - q).max(0.0);
            }
            normalise(&mut p);
            if !replace {
                q[token as usize] = 0.0;
                normalise(&mut q);
            }
        }
        let purpose = Purpose::Residual;
        let bonus = key(purpose, node).stream().gumbel_argmax(p.iter().map(|p| p.ln()));
        let bonus = bonus.ok_or(Fault::TargetLogits { row: node })?;
        return Ok(Walk { path, bonus });
    }
}

/// Scales to sum 1; leaves an all-zero vector alone.
fn normalise(x: &mut [f64]) {
    let sum: f64 = x.iter().sum();
    if sum > 0.0 {
        for x in x {
            *x /= sum;
        }
    }
}
