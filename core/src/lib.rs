//! The pure heart of Treeline: draft trees, verification laws, the decode round, metrics and records.
//!
//! Nothing here reads a file, a clock, a global or a thread. A backend implements [`Drafter`], [`Verifier`] and
//! [`Engine`]; a policy implements [`TreePolicy`] (or [`RequestPolicy`]); [`run`] drives them.
//!
//! Words follow one table: a *budget* counts nodes without the root, a verify pass has `1 + budget` *rows*, and τ counts
//! the tokens committed per verify step with the bonus.
//!
//! # A policy in 40 lines
//!
//! In every round the drafter proposes ranked tokens per depth, the policy turns them into a tree, the target judges the
//! whole tree in one pass, and the path that it agrees with is emitted, with one more token of its own. A policy says
//! before drafting how deep and wide it wants to look, and then grows one tree per running request.
//!
//! This one takes the drafter's best chain, and its second choice for the first token, where most chains break:
//!
//! ```
//! use treeline_core::{
//!     Ask, DraftView, Forest, Grow, Limits, Needs, NodeRef, ROOT, Round, TreeBuilder, TreeError, TreePolicy,
//! };
//!
//! struct ChainAndSibling;
//!
//! impl ChainAndSibling {
//!     fn plan(seq: u32, drafts: &dyn DraftView, tree: &mut TreeBuilder<'_>) -> Result<(), TreeError> {
//!         let children = |node, depth| drafts.children(NodeRef { seq, node, depth });
//!         let mut node = ROOT;
//!         for depth in 0..drafts.depth(seq) {
//!             // Keep one node for the sibling.
//!             let Some(&best) = children(node, depth).first().filter(|_| tree.left() > 1) else { break };
//!             node = tree.add(node, 0, best)?;
//!         }
//!         if let Some(&second) = children(ROOT, 0).get(1).filter(|_| tree.left() > 0) {
//!             tree.add(ROOT, 1, second)?;
//!         }
//!         Ok(())
//!     }
//! }
//!
//! impl TreePolicy for ChainAndSibling {
//!     fn kind(&self) -> &str {
//!         "chain-and-sibling"
//!     }
//!
//!     fn needs(&self, limits: &Limits) -> Needs {
//!         Needs { depth: limits.depth, width: 2, ..Needs::default() }
//!     }
//!
//!     fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<Ask>) {
//!         // The caps already leave room for the end of the response and of the context.
//!         ask.extend(round.caps.iter().map(|cap| Ask { depth: cap.depth, width: 2, draw: round.draw }));
//!     }
//!
//!     fn grow(&mut self, _: &Round<'_>, drafts: &dyn DraftView, forest: &mut Forest, _: &mut Vec<NodeRef>) -> Grow {
//!         for seq in 0..forest.len() {
//!             // A request whose draft failed ends alone; its tree stays bare.
//!             if forest.fault(seq).is_none() {
//!                 let mut tree = TreeBuilder::new(forest.tree_mut(seq));
//!                 let planned = Self::plan(seq as u32, drafts, &mut tree);
//!                 planned.unwrap_or_else(|e| forest.fail(seq, treeline_core::Fault::Policy(e.to_string())));
//!             }
//!         }
//!         Grow::Done
//!     }
//! }
//!
//! // An engine over a model of 24 tokens (feature `test-support`); real engines are the backends.
//! use treeline_core::metrics::Tally;
//! use treeline_core::testing::{MockEngine, Script};
//! use treeline_core::{Law, Request, RunSetup, Sampling, run};
//!
//! let requests: Vec<Request> = (0..8)
//!     .map(|id| Request { id, prompt: vec![1, 2, id as u32], max_new: 64, eos: vec![], sampling: Sampling::at(0.3) })
//!     .collect();
//! let law = Law::SampleMatch { seed: 7 };
//! let decode = |budget, tally: &mut Tally| {
//!     let setup = RunSetup { budget, concurrency: 4, law: &law, cost: None };
//!     let mut engine = MockEngine::new(Script { noise: 0.5, ..Script::new(24) });
//!     run(&mut engine, &mut ChainAndSibling, &requests, &setup, &mut |view| tally.add_view(view))
//! };
//!
//! let (mut plain, mut trees) = (Tally::new(), Tally::new());
//! // Budget 0 is plain decoding. The tokens are the same: the tree only decides how many come at once.
//! for (one_by_one, by_tree) in decode(0, &mut plain)?.iter().zip(decode(8, &mut trees)?) {
//!     assert_eq!(one_by_one.tokens, by_tree.tokens);
//! }
//! assert_eq!(plain.tau(), Some(1.0));
//! assert!(trees.tau() > Some(1.8));
//! # Ok::<(), treeline_core::Error>(())
//! ```
//!
//! A conditional drafter (an autoregressive one) only knows the children of nodes that were expanded: push the new nodes
//! to `wave` and return [`Grow::Expand`], and `grow` is called again with their children in view.
//!
//! # What is proved
//!
//! Laws are lossless by enumeration: for every draw, coin and sample on tiny vocabularies the output's distribution equals
//! the target's to 10⁻¹² (`tests/laws.rs`). `treeline_core::testing::Proof` (feature `test-support`) does the same for any
//! policy. Runs emit what plain decoding emits, whatever the policy, batch and drafter (`tests/runs/`).
#![forbid(unsafe_code)]

pub mod admission;
pub mod batch;
pub mod cost;
mod distinct;
pub mod draft;
pub mod error;
pub mod forest;
pub mod law;
pub mod log;
pub mod mask;
pub mod metrics;
pub mod round;
pub mod sampling;
pub mod schedule;
pub mod seams;
pub mod stream;
#[cfg(feature = "test-support")]
pub mod testing;
pub mod trace;
pub mod tree;

pub use admission::Slots;
pub use batch::{Batch, Caps, Limits, Request, Sampling, Seq};
pub use cost::CostCurve;
pub use draft::{Ask, Candidate, Conditional, DraftView, Draw, Lattice, NodeRef};
pub use error::{Error, Fault};
pub use forest::Forest;
pub use law::{End, Law, Rows, Step, Truth};
pub use log::{Entry, Phase, PhaseTimes, Priced, RoundLog};
pub use mask::AncestorMask;
pub use round::{RoundView, check_fit};
pub use schedule::{Response, RunSetup, run};
pub use seams::{
    Admit, Drafter, Engine, EngineInfo, Grow, Needs, Program, ProgramBudget, RequestPolicy, Round, StepCost, StepShape,
    StepTime, StepView, TreePolicy, Verifier,
};
pub use tree::{NodeId, ROOT, Tree, TreeBuilder, TreeError};
