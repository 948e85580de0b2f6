//! Seeded faults: each repeats a class of fault that public engines had, and must turn a test of this crate red. They
//! exist in test builds only; elsewhere [`seeded`] is a constant `false`.

/// A fault that a test can switch on for its own thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seeded {
    /// The rotary position of a tree row is its slot (public fault 8).
    RopeBySlot,
    /// Positions of a tree start behind the root (10).
    PositionOffByOne,
    /// What rows saw in the pass before is still in the list of the next (12, 13).
    StaleTails,
    /// Offsets of the tree mask wrap at 32 (15).
    MaskOf32,
    /// Rows of a batch are found as if all trees had the first one's size (16).
    UniformStride,
    /// Rows of a tree see every earlier row (17, 18).
    NoTreeMask,
    /// A sliding window counts slots (19).
    WindowBySlot,
    /// A child is judged by its own row, not by its parent's (21).
    OwnRow,
    /// Every request is decoded greedily (23).
    AlwaysGreedy,
    /// The order of a sum depends on the number of rows (24).
    RowsChangeSums,
    /// Features of the first rows go to the drafter, accepted or not (25).
    RejectedFeatures,
    /// The accepted path stays scattered (26).
    ScatteredPath,
    /// The last layer's cache is not gathered (27).
    LayerSkipsGather,
    /// A released slot stays taken (28).
    SlotLeak,
    /// Offsets into the cache are 32-bit (29).
    Offset32,
    /// A padding row is routed to experts and counted (36).
    PaddingRouted,
    /// A NaN logit of the drafter counts as zero (2).
    NanIsZero,
    /// An unusable row of the target gives token 0 (7).
    NanIsTokenZero,
}

#[cfg(test)]
thread_local! {
    static ON: std::cell::Cell<Option<Seeded>> = const { std::cell::Cell::new(None) };
}

/// Whether `fault` is switched on in this thread.
#[cfg(test)]
pub(crate) fn seeded(fault: Seeded) -> bool {
    ON.get() == Some(fault)
}

/// No fault outside tests.
#[cfg(not(test))]
pub(crate) const fn seeded(_: Seeded) -> bool {
    false
}

/// Whether any fault is switched on in this thread.
#[cfg(test)]
pub(crate) fn any() -> bool {
    ON.get().is_some()
}

/// Runs `check` with `fault` switched on.
#[cfg(test)]
pub(crate) fn with<T>(fault: Seeded, check: impl FnOnce() -> T) -> T {
    ON.set(Some(fault));
    let out = check();
    ON.set(None);
    out
}

/// Runs `work` with every fault switched off: what a seeded fault itself calls.
#[cfg(test)]
pub(crate) fn without<T>(work: impl FnOnce() -> T) -> T {
    let on = ON.replace(None);
    let out = work();
    ON.set(on);
    out
}

/// Nothing is switched on outside tests.
#[cfg(not(test))]
pub(crate) fn without<T>(work: impl FnOnce() -> T) -> T {
    work()
}
