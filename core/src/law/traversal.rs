//! Traversal verification (arXiv 2505.12398): leaves are judged before their parents, so that a path that is good as a
//! whole survives one unlikely token in its middle.
//!
//! Every node carries the share `a` of its path's drafts that its subtree may accept. A child gets min(a·p/q, 1); when the
//! child's whole subtree is rejected, what it did not use, r = relu(a·p − q), goes back: p becomes r/Σr and a becomes
//! Σr/(Σr + 1 − a). A node without children left is accepted with probability a; the root's a is always 1.

use super::chance::{Chance, Site};
use super::residual::{impossible, normalise, residual_token};
use super::{Case, Walk, drafted};
use crate::error::Fault;
use crate::sampling;
use crate::stream::Purpose;
use crate::tree::{NodeId, ROOT};

/// How a node's share is updated after a child's rejection: from Σr, the share before, and the mass that `q` has left of
/// the tokens not drawn yet.
pub(crate) type Update = fn(sum: f64, share: f64, left: f64) -> f64;

/// The lossless rule.
pub(crate) fn exact(sum: f64, share: f64, _left: f64) -> f64 {
    sum / (sum + 1.0 - share)
}

/// What is judged by: the update, and whether candidates were drawn with replacement.
#[derive(Clone, Copy)]
pub(crate) struct Rule {
    pub update: Update,
    pub replace: bool,
}

/// The law in force: lossless, candidates drawn without replacement.
pub(crate) const EXACT: Rule = Rule { update: exact, replace: false };

/// Judges the tree, depth first in draw order. Each node's candidates were drawn on their own.
pub(crate) fn walk(rule: Rule, chance: &mut dyn Chance, case: &Case<'_>) -> Result<Walk, Fault> {
    let mut path = Vec::new();
    let bonus = subtree(rule, chance, case, ROOT, 1.0, &mut path)?;
    path.reverse();
    // The root is always accepted, so there is a bonus.
    let bonus = bonus.ok_or(Fault::TargetLogits { row: ROOT })?;
    Ok(Walk { path, bonus })
}

/// Judges the subtree of `node`: the bonus token if something in it is accepted, with the accepted path (deepest first,
/// the root left out) in `path`.
fn subtree(
    rule: Rule,
    chance: &mut dyn Chance,
    case: &Case<'_>,
    node: NodeId,
    mut share: f64,
    path: &mut Vec<NodeId>,
) -> Result<Option<u32>, Fault> {
    let depth = case.tree.depths()[node as usize];
    let mut p = Vec::new();
    sampling::target_dist(case.rows.logits(node), &case.seq.sampling, node, &mut p)?;
    let mut q = Vec::new();
    let mut left = 1.0;
    for child in case.tree.children(node) {
        if q.is_empty() {
            drafted(case, node, depth, &mut q)?;
        }
        let token = case.tree.tokens()[child as usize] as usize;
        if q[token] <= 0.0 {
            return Err(impossible(token as u32, depth));
        }
        let passed = (share * p[token] / q[token]).min(1.0);
        let bonus = subtree(rule, chance, case, child, passed, path)?;
        if bonus.is_some() {
            path.push(child);
            return Ok(bonus);
        }
        left *= 1.0 - q[token];
        let rest: Vec<f64> = p.iter().zip(&q).map(|(&p, &q)| (share * p - q).max(0.0)).collect();
        let sum: f64 = rest.iter().sum();
        if sum > 0.0 {
            share = (rule.update)(sum, share, left).min(1.0);
            p = rest;
            normalise(&mut p);
        } else if node != ROOT {
            // Nothing is left for this node; at the root only rounding leads here, and p stays.
            share = 0.0;
        }
        if !rule.replace {
            q[token] = 0.0;
            normalise(&mut q);
        }
    }
    let position = case.seq.start + depth;
    if node != ROOT {
        let token = case.tree.tokens()[node as usize];
        if !chance.coin(Site { purpose: Purpose::Coin, position, node }, token, share) {
            return Ok(None);
        }
    }
    residual_token(chance, position + 1, node, &mut p).map(Some)
}
