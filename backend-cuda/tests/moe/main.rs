//! Mixtures of experts on every device that is here.

mod experts;
mod reference;
mod routing;
