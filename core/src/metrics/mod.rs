//! Acceptance figures with their intervals.
