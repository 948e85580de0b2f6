//! Trees drawn as text: parents, positions, mask, accepted path and what is emitted.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Write;
use treeline_core::draft::Lattice;
use treeline_core::law::{Rows, Scratch, Truth, judge, settle};
use treeline_core::{Law, Sampling, Seq, Tree};

/// The truth behind the one root.
struct Behind(Vec<u32>);

impl Truth for Behind {
    fn token(&self, _request: u64, _root: u32, depth: u32) -> Option<u32> {
        self.0.get(depth as usize - 1).copied()
    }
}

/// A forced verdict reads no logits.
struct NoRows;

impl Rows for NoRows {
    fn logits(&self, _row: u32) -> &[f32] {
        &[]
    }
}

/// One node a line, two spaces a level.
fn parse_tree(lines: &[&str]) -> Tree {
    let mut tree = Tree::new(lines[0].trim().parse().unwrap(), 99, 99);
    let mut open = vec![0];
    for line in &lines[1..] {
        let depth = line.len() - line.trim_start().len();
        assert!(depth % 2 == 0 && depth / 2 <= open.len(), "indentation of `{line}`");
        open.truncate(depth / 2);
        let node = tree.push(*open.last().unwrap(), line.trim().parse().unwrap(), 0, 0.0).unwrap();
        open.push(node);
    }
    tree
}

/// What the case's upper half gives, in the form of its lower half.
fn render(input: &str) -> String {
    let lines: Vec<&str> = input.lines().filter(|l| !l.starts_with('#') && *l != "draw").collect();
    let drawn = lines.iter().take_while(|l| l.trim().parse::<u32>().is_ok()).count();
    let keys: BTreeMap<&str, Vec<u32>> = lines[drawn..]
        .iter()
        .map(|line| {
            let mut words = line.split_whitespace();
            (words.next().unwrap(), words.map(|w| w.parse().unwrap()).collect())
        })
        .collect();
    let list = |key| keys.get(key).cloned().unwrap_or_default();
    let tree = parse_tree(&lines[..drawn]);
    if let Err(e) = tree.check(false) {
        return format!("error {e}\n");
    }
    let seq = Seq {
        slot: 0,
        request: 0,
        index: 0,
        start: list("start")[0],
        root: tree.tokens()[0],
        left: list("left").first().copied().unwrap_or(99),
        eos: list("eos").into(),
        sampling: Sampling::GREEDY,
        round: 0,
    };
    let truth = Behind(list("truth"));
    let drafts = Lattice::new(0);
    let walk = match judge(&Law::Forced(&truth), 0, &seq, &tree, &NoRows, &drafts, &mut Scratch::default()) {
        Ok(walk) => walk,
        Err(e) => return format!("error {e}\n"),
    };
    let step = settle(&seq, &tree, &walk);
    let words = |list: &[u32]| list.iter().map(|x| format!(" {x}")).collect::<String>();
    let positions: Vec<u32> = tree.depths().iter().map(|d| seq.start + d).collect();
    let mut out = format!("parents{}\npositions{}\nmask\n", words(tree.parents()), words(&positions));
    let mask = tree.mask();
    for row in 0..mask.rows() {
        let bits: String = (0..=row).map(|column| if mask.sees(row, column) { '1' } else { '.' }).collect();
        assert!((row + 1..mask.rows()).all(|column| !mask.sees(row, column)), "row {row} sees the future");
        writeln!(out, "{bits}").unwrap();
    }
    writeln!(out, "path{}\nemitted{}", words(&step.path), words(&step.emitted)).unwrap();
    if let Some(end) = step.end {
        writeln!(out, "end {}", format!("{end:?}").to_lowercase()).unwrap();
    }
    out
}

#[test]
fn drawn_trees() {
    let cases: Vec<&str> = include_str!("trees/walks.txt").split("====\n").collect();
    assert_eq!(cases.len(), 9);
    for case in cases {
        let (input, expected) = case.split_once("---\n").unwrap();
        assert_eq!(render(input), expected, "{input}");
    }
}
