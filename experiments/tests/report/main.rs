//! The report on synthetic results: sentence, table and page.

mod data;
mod folder;
mod grid;
mod page;
mod priced;
mod text;
