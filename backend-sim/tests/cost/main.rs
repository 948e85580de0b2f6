//! The cost model: golden values of the formula book, shapes that must hold, properties, the calibration file, and the
//! public end-to-end figures.

mod calibration;
mod golden;
mod printed;
mod properties;
mod scene;
mod shapes;
mod tpot;
