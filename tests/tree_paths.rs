//! On the mini pair, the logits of every node of a tree equal those of its path decoded alone, bit for bit.

use crate::mini::{Drafter, cases, engine, requests, run_case, target};
use treeline_core::{Law, Tree};
use treeline_cpu::Scorer;

/// The largest tree of each of five requests, with the tokens before its root.
fn five_trees() -> Vec<(Vec<u32>, Tree)> {
    let case = cases().into_iter().find(|c| c.kind == "best-first" && c.drafter == Drafter::Dflash).unwrap();
    requests(5, 16, 0.0)
        .into_iter()
        .map(|request| {
            let mut seen: Option<(u32, Tree)> = None;
            let asked = std::slice::from_ref(&request);
            let responses = run_case(&mut engine(Drafter::Dflash, 1), &case, asked, &Law::Greedy, 1, &mut |view| {
                let tree = view.forest.tree(0);
                if seen.as_ref().is_none_or(|(_, s)| tree.rows() >= s.rows()) {
                    seen = Some((view.batch.seqs[0].start, tree.clone()));
                }
            });
            let (start, tree) = seen.unwrap();
            let mut before = request.prompt;
            before.extend(&responses[0].tokens);
            before.truncate(start as usize);
            (before, tree)
        })
        .collect()
}

#[test]
fn a_nodes_logits_are_those_of_its_path_alone() {
    for (before, tree) in five_trees() {
        assert!(tree.rows() > 20, "{} rows are no tree", tree.rows());
        let mut scorer = Scorer::new(target());
        scorer.extend(&before);
        let whole = scorer.tree(tree.tokens(), tree.parents());
        for node in 0..tree.rows() {
            let path: Vec<u32> = [0].into_iter().chain(tree.path(node)).map(|n| tree.tokens()[n as usize]).collect();
            scorer.truncate(before.len());
            let alone = scorer.extend(&path);
            let same = whole
                .row(node as usize)
                .iter()
                .zip(alone.row(alone.nrows() - 1))
                .all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "node {node} differs from its path {path:?}");
        }
    }
}
