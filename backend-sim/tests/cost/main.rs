//! The cost model: golden values of the formula book, shapes that must hold, properties, the calibration file, and the
//! public end-to-end figures.

// `-- --nocapture` prints the tables of the docs.
#![allow(clippy::print_stdout)]

mod calibration;
mod golden;
mod printed;
mod properties;
mod scene;
mod shapes;
mod tpot;
