//! The kernel sources, embedded.

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

/// Text of one file of `kernels/`.
#[must_use]
pub fn text(name: &str) -> Option<&'static str> {
    FILES.iter().find(|(n, _)| *n == name).map(|(_, t)| *t)
}
