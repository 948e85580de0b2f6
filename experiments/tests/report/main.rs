//! The report on synthetic results: sentence, table and page.

mod data;
mod folder;
mod page;
mod text;
