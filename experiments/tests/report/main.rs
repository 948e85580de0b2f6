//! The report on synthetic results: sentence, table and page.

mod data;
mod folder;
mod grid;
mod missing;
mod page;
mod priced;
mod steps;
mod text;
