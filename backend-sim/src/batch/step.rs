//! Drafter and verifier of the priced engine: the replay's own, and the price of what they did.

use super::clock::Clock;
use super::worth::{Counter, Worth};
use super::{BatchSetup, Pricing};
use crate::cost::StepQuery;
use crate::replay::{Recording, ReplayDrafter, ReplayDrafts, ReplayVerdict, ReplayVerifier};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use treeline_core::log::Priced;
use treeline_core::{Ask, Batch, DraftView, Drafter, Error, Forest, Law, NodeRef, RoundLog, Step, Verifier};

/// What was drafted since the last price. Drafter and verifier share it; one thread uses both.
#[derive(Debug, Default)]
pub(super) struct Drafted {
    requests: AtomicU32,
    rows: AtomicU32,
    waves: AtomicU32,
}

/// The replay's drafter, which notes what its passes would have run over.
#[derive(Debug)]
pub struct PricedDrafter {
    inner: ReplayDrafter,
    drafted: Arc<Drafted>,
    draft_rows: u32,
}

impl PricedDrafter {
    pub(super) fn new(inner: ReplayDrafter, drafted: Arc<Drafted>, draft_rows: u32) -> Self {
        Self { inner, drafted, draft_rows }
    }
}

impl Drafter for PricedDrafter {
    type Features = ();
    type Drafts = ReplayDrafts;

    fn draft(&mut self, batch: &Batch, features: &(), ask: &[Ask]) -> Result<ReplayDrafts, Error> {
        // A block drafter runs its whole block, however few of its levels are asked for: it is not causal.
        let requests = ask.iter().filter(|a| a.depth > 0).count() as u32;
        self.drafted.requests.store(requests, Relaxed);
        self.drafted.rows.store(requests * self.draft_rows, Relaxed);
        self.drafted.waves.store(0, Relaxed);
        self.inner.draft(batch, features, ask)
    }

    fn expand(
        &mut self,
        drafts: &mut ReplayDrafts,
        batch: &Batch,
        forest: &Forest,
        wave: &[NodeRef],
    ) -> Result<(), Error> {
        if let ReplayDrafts::Conditional { rows, ask } = drafts {
            let new = |at: &&NodeRef| at.depth < ask[at.seq as usize].depth && !rows.expanded(**at);
            let nodes = wave.iter().filter(new).count() as u32;
            self.drafted.rows.fetch_add(nodes, Relaxed);
            self.drafted.waves.fetch_add(u32::from(nodes > 0), Relaxed);
        }
        self.inner.expand(drafts, batch, forest, wave)
    }
}

/// The replay's verifier, which prices each round at its commit.
pub struct PricedVerifier {
    inner: ReplayVerifier,
    recording: Recording,
    drafted: Arc<Drafted>,
    cost: Arc<dyn Pricing>,
    worth: Worth,
    counter: Counter,
    overlap: Vec<f32>,
    pub(super) clock: Clock,
}

impl PricedVerifier {
    pub(super) fn new(
        inner: ReplayVerifier,
        recording: Recording,
        drafted: Arc<Drafted>,
        cost: Arc<dyn Pricing>,
        setup: &BatchSetup,
    ) -> Self {
        let worth = Worth::new(cost.experts(), setup.budget);
        let (counter, overlap) = (Counter::default(), setup.overlap.clone());
        Self { inner, recording, drafted, cost, worth, counter, overlap, clock: Clock::default() }
    }

    /// The round as a question to the cost model.
    fn query(&mut self, batch: &Batch, forest: &Forest) -> StepQuery {
        let mut effective = 0.0;
        if self.worth.counts() {
            for (seq, tree) in batch.iter().zip(forest.trees()) {
                let place = self.recording.place(seq).map(|(place, _)| place);
                let factor = place.and_then(|place| self.overlap.get(place)).map_or(1.0, |&f| f64::from(f));
                effective += self.worth.of(self.counter.tree(tree), factor);
            }
        }
        StepQuery {
            requests: batch.len() as u32,
            rows: forest.rows(),
            context_sum: batch.iter().map(|seq| u64::from(seq.start)).sum(),
            draft_requests: self.drafted.requests.load(Relaxed),
            draft_rows: self.drafted.rows.load(Relaxed),
            effective_rows: self.worth.counts().then_some(effective),
            expand_waves: self.drafted.waves.load(Relaxed),
        }
    }
}

impl Verifier for PricedVerifier {
    type Features = ();
    type Verdict = ReplayVerdict;

    fn verify(
        &mut self,
        batch: &Batch,
        forest: &Forest,
        drafts: &dyn DraftView,
        law: &Law<'_>,
    ) -> Result<ReplayVerdict, Error> {
        self.inner.verify(batch, forest, drafts, law)
    }

    fn commit(
        &mut self,
        batch: &Batch,
        forest: &Forest,
        verdict: ReplayVerdict,
        features: &mut (),
        log: &mut RoundLog,
    ) -> Result<(), Error> {
        self.inner.commit(batch, forest, verdict, features, log)?;
        let query = self.query(batch, forest);
        let price = self.cost.price(&query);
        let charged = self.clock.round(price.phases, batch.iter().map(|s| s.slot), log.results.iter());
        log.priced = Some(Priced {
            experts: price.experts,
            padded_rows: price.padded_rows,
            watts: price.watts,
            joules: (price.joules + charged.joules) * f64::from(self.cost.ranks()),
            in_domain: price.in_domain,
            charged_ms: charged.ms,
        });
        Ok(())
    }

    fn recycle(&mut self, steps: &mut Vec<Step>) {
        self.inner.recycle(steps);
    }
}
