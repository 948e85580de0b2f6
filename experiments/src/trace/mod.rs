//! Trace files: what a drafter proposed at every position of plainly decoded responses, in Parquet.
//!
//! The types are [`treeline_core::trace`]; this module is their file form, which `docs/trace-format.md` specifies for
//! writers in other languages. One row per *emitted token* of a response, in order; a row holds what was drafted behind
//! that token, unless the token was the last. Columns:
//!
//! | column | type | holds |
//! | --- | --- | --- |
//! | `request` | uint64 | request id |
//! | `domain` | string | domain of the prompt |
//! | `prompt_tokens` | uint32 | absolute position of the first emitted token |
//! | `max_new` | uint32 | the most tokens that the request might emit |
//! | `emitted` | uint32 | tokens that it emitted, the first one included |
//! | `end` | string | `eos`, `length` or `context` |
//! | `index` | uint32 | place of the token in the response, 0 = chosen by the prefill |
//! | `token` | uint32, optional | its id; absent in a rank trace |
//! | `truth` | list of int32 | per depth 1, 2, …: rank of the token that came in the drafter's row, −1 = not listed |
//! | `row_end` | list of uint32 | ends of the rows in `logp` |
//! | `logp` | list of float32 | log-probabilities, row after row, best first |
//! | `id` | list of uint32 | token ids in the same order; empty in a rank trace |
//! | `parent`, `rank` | list of uint32 | conditional drafters: the expansion that each row belongs to |
//!
//! The key-value metadata holds `treeline.trace` = [`TraceMeta`](treeline_core::trace::TraceMeta) as JSON and
//! `treeline.trace.version`. A file that Treeline wrote carries a checksum behind its first four bytes, so damage is found
//! before anything is decoded; files of other writers are read without it, every size that a header claims being held
//! against the length of the file first.

mod columns;
mod edit;
mod error;
pub(crate) mod guard;
mod info;
mod read;
mod seal;
mod write;

pub(crate) use columns::{Column, schema, write_group};
pub use edit::{narrow, ranks_only};
pub use error::TraceFileError;
pub(crate) use guard::envelope_holds;
pub use info::{Info, info};
pub use read::read;
pub use write::write;

/// Version of the columns and their meaning.
pub const VERSION: u32 = 1;
/// Metadata key of the [`TraceMeta`](treeline_core::trace::TraceMeta).
pub const META_KEY: &str = "treeline.trace";
/// Metadata key of [`VERSION`].
pub const VERSION_KEY: &str = "treeline.trace.version";

#[cfg(test)]
mod tests;
