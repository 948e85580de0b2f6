//! What runs the models.

use super::policy::{Program, Round};
use crate::batch::{Batch, Request};
use crate::draft::{Ask, DraftView, NodeRef};
use crate::error::{Error, Fault};
use crate::forest::Forest;
use crate::law::{Law, Step};
use crate::log::{Phase, PhaseTimes, RoundLog};

/// Proposes tokens.
pub trait Drafter {
    /// What the target hands over after each commit (hidden features by slot).
    type Features;
    /// The round's drafts.
    type Drafts: DraftView;

    /// Drafts for every sequence of `batch`; `ask` has one entry a sequence, depth 0 = skip. One sequence's failure is
    /// recorded in the drafts ([`DraftView::fault`]).
    ///
    /// # Errors
    /// Only what ends the whole run.
    fn draft(&mut self, batch: &Batch, features: &Self::Features, ask: &[Ask]) -> Result<Self::Drafts, Error>;

    /// One forward for a wave of nodes over all requests; afterwards their children can be read. Block drafters do
    /// nothing.
    ///
    /// # Errors
    /// Only what ends the whole run.
    fn expand(
        &mut self,
        drafts: &mut Self::Drafts,
        batch: &Batch,
        forest: &Forest,
        wave: &[NodeRef],
    ) -> Result<(), Error>;
}

/// Runs the target over the trees and commits what was accepted.
pub trait Verifier {
    /// As the drafter's.
    type Features;
    /// The outcome of a pass; opaque, since it may stay on a device.
    type Verdict;

    /// One target forward over all rows of `forest`, judged by `law`.
    ///
    /// # Errors
    /// Only what ends the whole run; one sequence's failure is part of the verdict.
    fn verify(
        &mut self,
        batch: &Batch,
        forest: &Forest,
        drafts: &dyn DraftView,
        law: &Law<'_>,
    ) -> Result<Self::Verdict, Error>;

    /// Gathers the KV rows of the accepted paths, writes the features of the next draft, and pushes one result per
    /// sequence, in batch order, to `log.results` (a sequence with [`Forest::fault`] gets that fault), and the distinct
    /// experts to `log.experts`.
    ///
    /// # Errors
    /// Only what ends the whole run.
    fn commit(
        &mut self,
        batch: &Batch,
        forest: &Forest,
        verdict: Self::Verdict,
        features: &mut Self::Features,
        log: &mut RoundLog,
    ) -> Result<(), Error>;

    /// Hands back steps of a round that is over, to be emptied and filled again: a verifier that does so allocates nothing
    /// in steady state. Others let them go.
    fn recycle(&mut self, _steps: &mut Vec<Step>) {}
}

/// Where the admission of a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admit {
    /// A chunk of the prompt was processed; call again.
    More,
    /// The prompt is in the cache and the first token is chosen: it is the root at position `start` (= prompt length).
    Done {
        /// The first token of the response.
        root: u32,
        /// Its absolute position.
        start: u32,
    },
}

/// What an engine and its drafter can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineInfo {
    /// Sequences that it can hold at once.
    pub slots: u32,
    /// Positions per sequence, prompt included.
    pub context: u32,
    /// Tokens of the vocabulary.
    pub vocab: u32,
    /// Deepest level that the drafter reaches.
    pub depth: u32,
    /// Most ranks per row.
    pub width: u32,
    /// Whether candidates depend on the path (an autoregressive drafter) or on depth alone (a block drafter).
    pub conditional: bool,
    /// Whether the drafter can give its full distribution and drawn candidates.
    pub draws: bool,
}

/// A drafter and a verifier over one set of slots.
pub trait Engine {
    /// The verifier.
    type V: Verifier;
    /// The drafter.
    type D: Drafter<Features = <Self::V as Verifier>::Features>;

    /// What it can do.
    fn info(&self) -> EngineInfo;

    /// Whether the next waiting request may be admitted now: it has arrived, and its KV fits beside what runs. A request
    /// that can never be served is ready too, so that [`Engine::admit`] can say why. Asked in list order: a request that
    /// must wait holds up those behind it. Engines without arrivals and with fixed slots are always ready.
    fn ready(&mut self, _request: &Request) -> bool {
        true
    }

    /// Nothing runs and the next waiting request is not ready: move the clock on to when it will be. When it is not ready
    /// after that either, the run ends with [`Error::Stalled`].
    fn idle(&mut self) {}

    /// Takes the next chunk of `request`'s prompt into `slot`; the first call for a free slot starts it.
    ///
    /// # Errors
    /// A [`Fault`] of this request; the slot is free again then.
    fn admit(&mut self, slot: u32, request: &Request, law: &Law<'_>) -> Result<Admit, Fault>;

    /// Frees a slot.
    fn release(&mut self, slot: u32);

    /// Drafter, verifier and the features that pass between them.
    fn parts(&mut self) -> (&mut Self::D, &mut Self::V, &mut <Self::V as Verifier>::Features);

    /// Runs a whole round on the device for a policy that publishes a [`Program`]: draft, trees, verification, commit.
    /// `None` = not fused, and nothing was touched: run it staged. Otherwise `forest` (bare roots before) holds the trees
    /// and faults, `log.results` one result per sequence, and the drafts are given back, rows cut to the round's width, so
    /// that a fused round tells as much as a staged one.
    ///
    /// # Errors
    /// Only what ends the whole run.
    fn fused(
        &mut self,
        _round: &Round<'_>,
        _program: &Program,
        _law: &Law<'_>,
        _forest: &mut Forest,
        _log: &mut RoundLog,
    ) -> Result<Option<<Self::D as Drafter>::Drafts>, Error> {
        Ok(None)
    }

    /// A phase begins; an engine with a clock charges the time since the last mark to the phase before.
    fn mark(&mut self, _phase: Phase) {}

    /// Times since the last call, where there is a clock.
    fn take_times(&mut self) -> Option<PhaseTimes> {
        None
    }
}
