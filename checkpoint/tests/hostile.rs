//! Arbitrary and damaged files: an error, never a panic, a hang, or an allocation of what a file claims.

mod hostile {
    pub mod alloc;
    pub mod configs;
    pub mod tensors;
    pub mod tokenizers;
}
