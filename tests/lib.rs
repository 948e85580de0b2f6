//! Nothing is exported: the crate exists for its test target, `main.rs`.
