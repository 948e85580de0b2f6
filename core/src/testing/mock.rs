//! The scripted engine.

use super::drafter::MockDrafter;
use super::script::{Script, Seeded};
use super::verifier::MockVerifier;
use crate::batch::Request;
use crate::error::Fault;
use crate::law::{Law, Scratch, first_token};
use crate::seams::{Admit, Engine, EngineInfo};

/// An engine over a tiny model whose KV cache holds tokens, so that a wrong mask, position or gather gives wrong text. It
/// is exact: what it emits under a greedy or sample-match law must not depend on policy, budget or batch.
#[derive(Debug)]
pub struct MockEngine {
    drafter: MockDrafter,
    verifier: MockVerifier,
    features: Vec<Vec<u32>>,
    /// Prompt tokens in the cache, for slots that are taken.
    taken: Vec<Option<usize>>,
    /// Slots of `admit` calls that began a request, in order.
    admitted: Vec<(u32, u64)>,
}

impl MockEngine {
    /// An engine that plays `script`.
    #[must_use]
    pub fn new(script: Script) -> Self {
        let slots = script.slots as usize;
        Self {
            drafter: MockDrafter { script: script.clone(), calls: 0 },
            verifier: MockVerifier { script, kv: vec![Vec::new(); slots], calls: 0 },
            features: vec![Vec::new(); slots],
            taken: vec![None; slots],
            admitted: Vec::new(),
        }
    }

    /// Free slots; all of them after a run, or something leaked.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.taken.iter().filter(|t| t.is_none()).count() as u32
    }

    /// KV rows held, over all slots; 0 after a run.
    #[must_use]
    pub fn kv_rows(&self) -> usize {
        self.verifier.kv.iter().map(Vec::len).sum()
    }

    /// Forward passes of drafter and target so far.
    #[must_use]
    pub fn calls(&self) -> (u64, u64) {
        (self.drafter.calls, self.verifier.calls)
    }

    /// (slot, request) in order of admission.
    #[must_use]
    pub fn admitted(&self) -> &[(u32, u64)] {
        &self.admitted
    }
}

impl Engine for MockEngine {
    type V = MockVerifier;
    type D = MockDrafter;

    fn info(&self) -> EngineInfo {
        let script = &self.verifier.script;
        EngineInfo {
            slots: script.slots,
            context: script.context,
            vocab: script.target.vocab,
            depth: script.depth,
            width: script.width,
            conditional: script.conditional,
            draws: true,
        }
    }

    fn admit(&mut self, slot: u32, request: &Request, law: &Law<'_>) -> Result<Admit, Fault> {
        let script = &self.verifier.script;
        let (vocab, at) = (script.target.vocab, slot as usize);
        if let Some(token) = request.prompt.iter().find(|t| **t >= vocab) {
            self.release(slot);
            return Err(Fault::Request(format!("token {token} is outside the vocabulary of {vocab}")));
        }
        let kv = &mut self.verifier.kv[at];
        if self.taken[at].is_none() {
            kv.clear();
            self.admitted.push((slot, request.id));
        }
        let done = self.taken[at].unwrap_or(0);
        let next = (done + script.chunk).min(request.prompt.len());
        kv.extend_from_slice(&request.prompt[done..next]);
        self.taken[at] = Some(next);
        if next < request.prompt.len() {
            return Ok(Admit::More);
        }
        self.features[at].clone_from(kv);
        let logits = script.logits(request.id, &self.verifier.kv[at], next as u32 - 1);
        match first_token(law, request, &logits, &mut Scratch::default()) {
            Ok(root) => Ok(Admit::Done { root, start: next as u32 }),
            Err(fault) => {
                self.release(slot);
                Err(fault)
            }
        }
    }

    fn release(&mut self, slot: u32) {
        self.taken[slot as usize] = None;
        if self.verifier.script.seeded == Seeded::Leak {
            return;
        }
        self.verifier.kv[slot as usize].clear();
        self.features[slot as usize].clear();
    }

    fn parts(&mut self) -> (&mut MockDrafter, &mut MockVerifier, &mut Vec<Vec<u32>>) {
        (&mut self.drafter, &mut self.verifier, &mut self.features)
    }
}
