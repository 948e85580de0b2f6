//! A policy's rounds over every response, one after the other: what steady-state steps are put together from.

use super::Tables;
use crate::batch::worth::{Counter, Edges};
use crate::nested::Roots;

/// One round of one request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Round {
    /// Index of the request.
    pub request: u32,
    /// Index of its root.
    pub index: u32,
    /// The tree's nodes by kind.
    pub edges: Edges,
    /// Tokens that it commits.
    pub emitted: u16,
    /// Whether the drafter ran.
    pub drafted: bool,
    /// Whether the tree would have needed a rank that the trace does not list.
    pub cut: bool,
}

/// Rounds in order of requests and roots.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Tape {
    /// The rounds.
    pub rounds: Vec<Round>,
    /// First round of each request, and the end of the last.
    pub starts: Vec<u32>,
    /// Tokens that the rounds of each request emit.
    pub tokens: Vec<u32>,
}

/// Which tree a root gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shape {
    /// None.
    Plain,
    /// A chain of so many nodes.
    Chain(u32),
    /// The first so many nodes of the table.
    Best(u32),
}

impl Tape {
    /// The rounds of all responses, cut at `response` tokens, with the tree that `shape` gives each root; its nodes are
    /// counted by kind where `edges` says so.
    pub fn new(
        tables: &Tables<'_>,
        response: Option<u32>,
        edges: bool,
        mut shape: impl FnMut(&Roots<'_>) -> Shape,
    ) -> Self {
        let nested = tables.nested();
        let mut tape = Self { rounds: Vec::new(), starts: vec![0], tokens: Vec::new() };
        let mut counter = Counter::default();
        for request in 0..nested.requests() {
            let tokens = response.map_or(nested.emitted(request), |r| r.min(nested.emitted(request)));
            let mut index = 0;
            while index + 1 < tokens {
                let roots = nested.root(request, index);
                let counter = edges.then_some(&mut counter);
                let round = round(tables, request, index, &roots, shape(&roots), tokens, counter);
                index += u32::from(round.emitted);
                tape.rounds.push(round);
            }
            tape.tokens.push(index);
            tape.starts.push(tape.rounds.len() as u32);
        }
        tape
    }

    /// Rounds of a request.
    pub fn of(&self, request: usize) -> std::ops::Range<u32> {
        self.starts[request]..self.starts[request + 1]
    }
}

/// The round of a root with a given tree; its nodes are counted where there is a counter.
pub(super) fn round(
    tables: &Tables<'_>,
    request: usize,
    index: u32,
    roots: &Roots<'_>,
    shape: Shape,
    tokens: u32,
    counter: Option<&mut Counter>,
) -> Round {
    let nested = tables.nested();
    let drafted = shape != Shape::Plain && roots.levels > 0;
    let (edges, accepted, cut) = match shape {
        Shape::Plain => (Edges::default(), 0, false),
        Shape::Chain(n) => {
            let nodes = n.min(roots.levels);
            (Edges { chain: nodes as u16, ..Edges::default() }, roots.chain.min(nodes), false)
        }
        Shape::Best(n) => {
            let nodes = || nested.tree(request, index).take(n as usize).map(|node| (node.depth, node.rank));
            let edges = counter.map_or(Edges::default(), |counter| counter.ranked(nodes()));
            (edges, roots.accepted(n), n > roots.certain)
        }
    };
    let emitted = (accepted + 1).min(roots.behind).min(tokens - 1 - index) as u16;
    Round { request: request as u32, index, edges, emitted, drafted, cut }
}
