//! What a step costs: the op list of a target step and of a draft pass, priced by one of three tiers.
//!
//! [`CostModel`] is compiled once from profiles, op tables or a calibration; then a price is a handful of look-ups. The
//! formulas, tiers and domains are described in `docs/cost-model.md`, the calibration file in `docs/calibration-file.md`.

mod attention;
mod breakdown;
mod calibrated;
mod describe;
mod distinct;
mod draft;
mod error;
mod inputs;
mod law;
mod line;
mod model;
mod op;
mod pads;
mod passes;
mod prefill;
mod price;
mod query;
mod scales;
mod setup;
mod slots;
mod tables;
mod target;
mod tiles;
mod work;

pub use calibrated::{Calibration, Domain, FittedOp, HeldOut, Manifest, StepPoint};
pub use error::CostError;
pub use inputs::InputError;
pub use line::{Limit, OpLine, Origin, Tier};
pub use model::CostModel;
pub use prefill::PromptPrice;
pub use query::{StepPrice, StepQuery};
pub use scales::OpScales;
pub use setup::CostSetup;
