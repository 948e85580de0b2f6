//! Whole-system tests of Treeline.
