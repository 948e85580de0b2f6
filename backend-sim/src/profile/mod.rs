//! Profiles: hardware, models, drafters and deployments as TOML, with a source for every figure.
//!
//! Shipped profiles are part of the binary and are asked for by name; a name with a `/` or an ending is a file of the user's,
//! and a model or drafter may also be a checkpoint's folder or `config.json`.
//!
//! ```
//! use std::path::Path;
//! use treeline_sim::profile;
//!
//! let b300 = profile::hardware("b300-sxm6", Path::new("."))?;
//! assert_eq!(b300.sms, 148);
//! assert!(b300.sources.of("hbm_bytes").is_some_and(|s| s.contains("nvidia-smi")));
//! # Ok::<(), profile::ProfileError>(())
//! ```

mod borrowed;
mod buckets;
mod catalog;
mod check;
mod config;
mod deployment;
mod drafter;
mod error;
mod hardware;
mod kind;
pub(crate) mod load;
mod model;
mod overheads;
mod shape;
mod sourced;

pub use buckets::{Buckets, Unit};
pub use catalog::{Shipped, deployment, drafter, hardware, is_path, model, shipped};
pub use deployment::{Allreduce, Deployment, Engine, Execution, TableRef, Tables, TreeAttention};
pub use drafter::{Drafter, DrafterKind};
pub use error::ProfileError;
pub use hardware::Hardware;
pub use kind::Kind;
pub use model::{Attention, INT4_GROUP32_BYTES, Model, Moe, Quant};
pub use overheads::Overheads;
pub use sourced::{Origin, Sources};

pub(crate) use catalog::read_text;
