//! Runs an experiment: cells, their figures, and the folder that they are left in.

mod files;

pub(crate) use files::write_atomic;
