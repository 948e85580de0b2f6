//! Whole-system tests: what no single crate can promise alone.

mod mini;
mod repo;

mod cuda;
mod equality;
mod fault_table;
mod replay;
mod structure;
mod tidy;
mod tree_paths;
