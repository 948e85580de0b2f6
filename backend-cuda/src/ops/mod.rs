//! One kernel and its arguments a file: what it computes, the shapes, and the launch.

pub mod mla_attend;
pub mod rows;
