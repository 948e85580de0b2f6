//! Whole-system tests: what no single crate can promise alone.

mod repo;

mod structure;
mod tidy;
