//! Which request holds which slot while its prompt is taken chunk by chunk: the part of admission that engines share.

use crate::batch::Request;
use crate::error::Fault;
use crate::seams::EngineInfo;

/// The slots of an engine that takes prompts in chunks.
#[derive(Debug, Clone)]
pub struct Slots {
    taken: Vec<Option<Taken>>,
}

#[derive(Debug, Clone, Copy)]
struct Taken {
    request: u64,
    /// Tokens of the prompt, and how many of them were taken.
    prompt: usize,
    done: usize,
}

impl EngineInfo {
    /// What a request must satisfy before its first chunk: a prompt that is there, fits the context, and is in the vocabulary.
    ///
    /// # Errors
    /// The request's fault.
    pub fn check(&self, request: &Request) -> Result<(), Fault> {
        if request.prompt.is_empty() {
            return Err(Fault::Request("the prompt is empty".into()));
        }
        let tokens = u32::try_from(request.prompt.len()).unwrap_or(u32::MAX);
        if tokens > self.context {
            return Err(Fault::PromptTooLong { tokens, context: self.context });
        }
        if let Some(token) = request.prompt.iter().find(|t| **t >= self.vocab) {
            return Err(Fault::Request(format!("token {token} is outside the vocabulary of {}", self.vocab)));
        }
        Ok(())
    }
}

impl Slots {
    /// So many slots, all free.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self { taken: vec![None; slots as usize] }
    }

    /// Slots that no request holds.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.taken.iter().filter(|t| t.is_none()).count() as u32
    }

    /// Tokens of the request's prompt that were taken before; 0 where this call starts it. Nothing is written down: that is
    /// [`advance`](Self::advance).
    ///
    /// # Errors
    /// A slot that does not exist or that another request holds, a request that runs already, one whose prompt has another
    /// length than when it began, or one that fails [`EngineInfo::check`].
    pub fn begin(&self, info: &EngineInfo, slot: u32, request: &Request) -> Result<usize, Fault> {
        let refuse = |why: String| Err(Fault::Request(why));
        match self.taken.get(slot as usize) {
            None => refuse(format!("slot {slot} does not exist: there are {}", self.taken.len())),
            Some(Some(t)) if t.request != request.id || t.done == t.prompt => {
                refuse(format!("slot {slot} is taken by request {}", t.request))
            }
            Some(Some(t)) if t.prompt != request.prompt.len() => refuse(format!(
                "the prompt has {} tokens now and had {} when its first chunk was taken: bring the same prompt until it is done",
                request.prompt.len(),
                t.prompt
            )),
            Some(Some(t)) => Ok(t.done),
            Some(None) => info.check(request).map(|()| 0),
        }
    }

    /// Writes down that `done` tokens of the request's prompt are taken; with all of them it runs.
    pub fn advance(&mut self, slot: u32, request: &Request, done: usize) {
        if let Some(taken) = self.taken.get_mut(slot as usize) {
            *taken = Some(Taken { request: request.id, prompt: request.prompt.len(), done });
        }
    }

    /// Whether this request's prompt is on its way in this slot: what a request that is refused gives back.
    #[must_use]
    pub fn filling(&self, slot: u32, request: &Request) -> bool {
        let taken = self.taken.get(slot as usize).and_then(Option::as_ref);
        taken.is_some_and(|t| t.request == request.id && t.done < t.prompt)
    }

    /// Frees a slot; whether it exists.
    pub fn release(&mut self, slot: u32) -> bool {
        self.taken.get_mut(slot as usize).map(|taken| *taken = None).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Sampling;

    const INFO: EngineInfo =
        EngineInfo { slots: 2, context: 8, vocab: 10, depth: 1, width: 1, conditional: false, draws: false };

    fn request(id: u64, prompt: &[u32]) -> Request {
        Request { id, prompt: prompt.to_vec(), max_new: 4, eos: vec![], sampling: Sampling::GREEDY }
    }

    #[track_caller]
    fn refused(slots: &Slots, slot: u32, request: &Request, why: &str) {
        let fault = slots.begin(&INFO, slot, request).unwrap_err().to_string();
        assert!(fault.contains(why), "{fault}");
    }

    #[test]
    fn a_prompt_comes_in_chunks_and_then_holds_its_slot() {
        let (mut slots, five) = (Slots::new(2), request(7, &[1, 2, 3, 4, 5]));
        assert_eq!(slots.begin(&INFO, 1, &five), Ok(0));
        slots.advance(1, &five, 3);
        assert_eq!((slots.begin(&INFO, 1, &five), slots.free(), slots.filling(1, &five)), (Ok(3), 1, true));
        refused(&slots, 1, &request(8, &[1]), "slot 1 is taken by request 7");
        assert!(!slots.filling(1, &request(8, &[1])));
        // Fewer tokens than were taken, and more than there were.
        refused(&slots, 1, &request(7, &[1, 2]), "has 2 tokens now and had 5");
        refused(&slots, 1, &request(7, &[1; 6]), "has 6 tokens now and had 5");
        slots.advance(1, &five, 5);
        refused(&slots, 1, &five, "slot 1 is taken by request 7");
        assert!(!slots.filling(1, &five), "it runs");
        assert!(slots.release(1) && !slots.release(2));
        assert_eq!((slots.begin(&INFO, 1, &five), slots.free()), (Ok(0), 2));
    }

    #[test]
    fn what_no_engine_can_take_is_refused_at_once() {
        let slots = Slots::new(2);
        refused(&slots, 2, &request(1, &[1]), "slot 2 does not exist: there are 2");
        refused(&slots, 0, &request(1, &[]), "the prompt is empty");
        refused(&slots, 0, &request(1, &[1; 9]), "the context holds 8");
        refused(&slots, 0, &request(1, &[1, 10]), "token 10 is outside the vocabulary of 10");
    }
}
