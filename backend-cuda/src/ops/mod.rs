//! One kernel and its arguments a file: what it computes, the shapes, and the launch.

pub mod dense;
pub mod embed;
pub mod gather;
pub mod gqa_attend;
pub mod gqa_prep;
mod gqa_tiles;
pub mod mla_attend;
pub mod mla_prep;
pub mod moe;
pub mod norm;
pub mod plan;
pub mod rope;
pub mod rows;
pub mod sample;
pub mod swiglu;
pub mod topk;
pub mod tree;
mod vector;
pub mod walk;
