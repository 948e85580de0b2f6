//! Text to token ids and back: `tokenizer.json`, the ids that end a response, and the check that model and tokenizer belong together.

mod chat;
mod special;
mod stream;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

pub use chat::{ChatTemplate, Message, Prompt};
pub use stream::TextStream;

use crate::config::TargetConfig;
use crate::error::{Error, Result};
use crate::json::read_limited;

/// The largest public tokenizers are about 35 MB.
const TOKENIZER_LIMIT: u64 = 256 << 20;

/// Stands in the text for an id that has no token: heads are padded beyond the tokenizer.
const UNKNOWN: char = char::REPLACEMENT_CHARACTER;

/// A tokenizer of the `tokenizer.json` form.
pub struct Tokenizer {
    path: PathBuf,
    inner: tokenizers::Tokenizer,
    /// One more than the largest id.
    size: usize,
    eos: Vec<u32>,
}

impl std::fmt::Debug for Tokenizer {
    // The inner tokenizer would print its whole vocabulary.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("path", &self.path).field("size", &self.size).field("eos", &self.eos).finish()
    }
}

impl Tokenizer {
    /// Reads `tokenizer.json` of a checkpoint folder, and the ids that end a response from `config.json`,
    /// `generation_config.json` and `tokenizer_config.json`, all that say one together.
    ///
    /// # Errors
    /// No `tokenizer.json`; one that is damaged; an end token that the tokenizer does not have.
    pub fn open(dir: &Path) -> Result<Self> {
        let path = dir.join("tokenizer.json");
        if !path.exists() {
            let problem = if dir.join("tiktoken.model").exists() {
                "missing: this folder has tiktoken.model, which must be converted to tokenizer.json first"
            } else {
                "missing: the checkpoint folder needs it"
            };
            return Err(fail(&path, problem));
        }
        let mut tokenizer = Self::from_bytes(&read_limited(&path, TOKENIZER_LIMIT)?, &path)?;
        tokenizer.eos = special::eos(dir, &tokenizer)?;
        Ok(tokenizer)
    }

    /// Reads the bytes of a `tokenizer.json`; `path` is for messages. No ids that end a response are known.
    ///
    /// # Errors
    /// Bytes that are no tokenizer.
    pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<Self> {
        let added = special::Added::read(bytes, path)?;
        // The library trusts its file in places: a damaged one may panic inside it.
        let built = guarded(path, || tokenizers::Tokenizer::from_bytes(bytes))?;
        let mut inner = built.map_err(|e| fail(path, format!("not a tokenizer: {e}")))?;
        // Both would change ids behind the caller's back, and padding allocates what the file says.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|e| fail(path, e.to_string()))?;
        let size = inner.get_vocab(true).values().max().map_or(0, |id| *id as usize + 1);
        if size == 0 {
            return Err(fail(path, "has no tokens"));
        }
        added.check(path, |token| inner.token_to_id(token))?;
        Ok(Self { path: path.to_owned(), inner, size, eos: Vec::new() })
    }

    /// Ids of a text. `special`: whether the tokenizer adds what it was made to add around a text (such as a beginning-of-text
    /// token); a rendered chat template brings its own, so pass false there. Special tokens written in the text are recognised.
    ///
    /// # Errors
    /// The text cannot be tokenised.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let encoded = guarded(&self.path, || self.inner.encode_fast(text, special))?;
        Ok(encoded.map_err(|e| fail(&self.path, format!("cannot encode: {e}")))?.get_ids().to_vec())
    }

    /// Text of ids; an id without a token becomes U+FFFD. `skip_special`: leave out special tokens.
    ///
    /// # Errors
    /// The decoder fails.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        let mut text = String::new();
        let mut rest = ids;
        loop {
            let known = rest.iter().position(|id| !self.has(*id)).unwrap_or(rest.len());
            let decoded = guarded(&self.path, || self.inner.decode(&rest[..known], skip_special))?;
            text += &decoded.map_err(|e| fail(&self.path, format!("cannot decode: {e}")))?;
            if known == rest.len() {
                return Ok(text);
            }
            text.push(UNKNOWN);
            rest = &rest[known + 1..];
        }
    }

    /// A decoder that takes one id at a time.
    pub fn stream(&self, skip_special: bool) -> TextStream<'_> {
        TextStream::new(self, skip_special)
    }

    /// One more than the largest id.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Ids that end a response, ascending; empty if nothing in the folder says.
    pub fn eos(&self) -> &[u32] {
        &self.eos
    }

    /// Id of a token as it is written in the tokenizer (byte-level tokens are in their escaped form).
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Token of an id as it is written in the tokenizer.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    fn has(&self, id: u32) -> bool {
        (id as usize) < self.size && self.inner.id_to_token(id).is_some()
    }

    /// Checks that every id is inside the model's vocabulary; a model may have more rows than the tokenizer has tokens.
    ///
    /// # Errors
    /// The tokenizer has an id that the model has not.
    pub fn check_model(&self, model: &TargetConfig) -> Result<()> {
        if self.size <= model.vocab {
            return Ok(());
        }
        let problem = format!(
            "its largest id is {}, but `vocab_size` of {} is {}: the tokenizer is another model's",
            self.size - 1,
            model.path.display(),
            model.vocab
        );
        Err(fail(&self.path, problem))
    }
}

fn fail(path: &Path, problem: impl Into<String>) -> Error {
    Error::Tokenizer { path: path.to_owned(), problem: problem.into() }
}

/// Runs library code on data from a file; a panic in it becomes an error.
fn guarded<T>(path: &Path, run: impl FnOnce() -> T) -> Result<T> {
    // Nothing that the closure could have left half-changed is used after a panic: the tokenizer is only read, or dropped.
    catch_unwind(AssertUnwindSafe(run))
        .map_err(|_| fail(path, "the tokenizer library failed on this file: it is damaged"))
}
