//! Multi-round residual rejection (SpecInfer with replacement, Sequoia without).

use super::chance::{Chance, Site};
use super::{Case, Walk, drafted};
use crate::error::Fault;
use crate::sampling;
use crate::stream::Purpose;
use crate::tree::ROOT;

/// Walks from the root: at each node its children are tried in index order (= draw order), each accepted with probability
/// min(1, p/q); on a rejection p becomes the normalised relu(p − q), and without replacement q loses the rejected token.
///
/// Lossless too when all nodes of a level share their draws: a level's draws are first looked at when the walk is there.
pub(super) fn walk(replace: bool, chance: &mut dyn Chance, case: &Case<'_>) -> Result<Walk, Fault> {
    let mut path = Vec::new();
    let mut node = ROOT;
    let (mut p, mut q): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    'descend: loop {
        let depth = path.len() as u32;
        let position = case.seq.start + depth + 1;
        sampling::target_dist(case.rows.logits(node), &case.seq.sampling, node, &mut p)?;
        let mut children = case.tree.children(node).peekable();
        if children.peek().is_some() {
            drafted(case, node, depth, &mut q)?;
        }
        for child in children {
            let token = case.tree.tokens()[child as usize];
            let (pt, qt) = (p[token as usize], q[token as usize]);
            if qt <= 0.0 {
                return Err(impossible(token, depth));
            }
            if chance.coin(Site { purpose: Purpose::Coin, position, node: child }, token, pt / qt) {
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
        let bonus = residual_token(chance, position, node, &mut p)?;
        return Ok(Walk { path, bonus });
    }
}

/// A drawn token that its own distribution excludes: draft and distribution do not belong together.
pub(super) fn impossible(token: u32, depth: u32) -> Fault {
    Fault::Draft { depth: depth + 1, why: format!("token {token} was drawn, but its probability is 0") }
}

/// Draws the token behind the accepted path from `p`, which is turned into its logarithm.
pub(super) fn residual_token(chance: &mut dyn Chance, position: u32, node: u32, p: &mut [f64]) -> Result<u32, Fault> {
    p.iter_mut().for_each(|p| *p = p.ln());
    let site = Site { purpose: Purpose::Residual, position, node };
    chance.pick(site, p).ok_or(Fault::TargetLogits { row: node })
}

/// Scales to sum 1; leaves an all-zero vector alone.
pub(super) fn normalise(x: &mut [f64]) {
    let sum: f64 = x.iter().sum();
    if sum > 0.0 {
        for x in x {
            *x /= sum;
        }
    }
}
