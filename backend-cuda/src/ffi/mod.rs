//! Thin layer over the vendor's libraries: they are found at run time, a missing one is a typed error, nothing panics.

pub(crate) mod blas;
pub(crate) mod context;
pub(crate) mod driver;
pub(crate) mod find;
pub(crate) mod module;
pub(crate) mod nvml;
pub(crate) mod nvrtc;
pub(crate) mod stream;
