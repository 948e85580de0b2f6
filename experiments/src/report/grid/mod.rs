//! The report of a priced run: thousands of cells over acceptance, context, concurrency and budget, as a map, an answer
//! for every column of it, and what stands behind them.

mod about;
mod answer;
mod breakdown;
mod curves;
mod maps;
mod page;
mod pareto;
mod tables;
mod text;
mod view;
mod waterfall;
mod words;

pub(super) use answer::answer;
pub(super) use page::page;
pub(super) use text::{markdown, picture, table};
pub(super) use view::View;
