//! A draft tree as text.

use std::fmt::Write as _;
use treeline_core::{ROOT, Tree};

/// Draws `tree` with one line a node, children by rank; `label` says what stands behind the branch.
pub(super) fn draw(tree: &Tree, label: &dyn Fn(u32) -> String) -> String {
    let mut children: Vec<Vec<u32>> = vec![Vec::new(); tree.rows() as usize];
    for node in 1..tree.rows() {
        children[tree.parents()[node as usize] as usize].push(node);
    }
    for list in &mut children {
        list.sort_by_key(|&n| (tree.ranks()[n as usize], n));
    }
    let mut out = format!("{}\n", label(ROOT));
    // Depth first, by hand: a chain may be deeper than a stack likes. The last child of a list comes off last.
    let mut open: Vec<(u32, String, bool)> = Vec::new();
    let push = |open: &mut Vec<(u32, String, bool)>, node: u32, lead: &str| {
        let list = &children[node as usize];
        for (i, &child) in list.iter().enumerate().rev() {
            open.push((child, lead.to_owned(), i + 1 == list.len()));
        }
    };
    push(&mut open, ROOT, "");
    while let Some((node, lead, last)) = open.pop() {
        let (branch, next) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{lead}{branch}{}", label(node));
        push(&mut open, node, &format!("{lead}{next}"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_lead_to_their_parents() {
        let mut tree = Tree::new(9, 5, 3);
        let a = tree.push(ROOT, 1, 0, -0.1).unwrap();
        let b = tree.push(ROOT, 2, 1, -0.2).unwrap();
        tree.push(b, 3, 0, -0.3).unwrap();
        let c = tree.push(a, 4, 1, -0.4).unwrap();
        tree.push(c, 5, 0, -0.5).unwrap();
        let drawn = draw(&tree, &|n| format!("t{}", tree.tokens()[n as usize]));
        assert_eq!(drawn, "t9\n├─ t1\n│  └─ t4\n│     └─ t5\n└─ t2\n   └─ t3\n");
        assert_eq!(draw(&Tree::new(9, 0, 0), &|_| "root".into()), "root\n");
    }
}
