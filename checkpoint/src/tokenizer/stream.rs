//! Decoding one id at a time: text comes out as soon as no later id can change it.

use super::Tokenizer;
use crate::error::Result;

/// Incremental decoder. What [`TextStream::push`] and [`TextStream::finish`] return, put together, is the text of all ids (for
/// the byte-level tokenizers of the supported families).
#[derive(Debug)]
pub struct TextStream<'t> {
    tokenizer: &'t Tokenizer,
    skip_special: bool,
    /// Ids that may still matter: the last completed stretch as context, then those since.
    window: Vec<u32>,
    /// How many of `window` belong to the context.
    context: usize,
    /// Bytes of the window's text that were already returned.
    returned: usize,
}

impl<'t> TextStream<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer, skip_special: bool) -> Self {
        Self { tokenizer, skip_special, window: Vec::new(), context: 0, returned: 0 }
    }

    /// Takes an id; returns the text that it completes, which is empty in the middle of a character.
    ///
    /// # Errors
    /// As [`Tokenizer::decode`].
    pub fn push(&mut self, id: u32) -> Result<String> {
        self.window.push(id);
        let text = self.tokenizer.decode(&self.window, self.skip_special)?;
        // The bytes of a character that is not complete decode to U+FFFD: wait for the rest of it.
        let whole = text.trim_end_matches(char::REPLACEMENT_CHARACTER).len();
        let new = text.get(self.returned..whole).unwrap_or_default().to_owned();
        self.returned = self.returned.max(whole);
        if whole == text.len() {
            // Some decoders treat the first token of a text differently, so the last stretch stays as context.
            self.window.drain(..self.context);
            self.context = self.window.len();
            self.returned = self.tokenizer.decode(&self.window, self.skip_special)?.len();
        }
        Ok(new)
    }

    /// What is left: bytes that never became a character, as U+FFFD.
    ///
    /// # Errors
    /// As [`Tokenizer::decode`].
    pub fn finish(self) -> Result<String> {
        let text = self.tokenizer.decode(&self.window, self.skip_special)?;
        Ok(text.get(self.returned..).unwrap_or_default().to_owned())
    }
}
