//! The report on synthetic results: sentence, table and page.

mod data;
mod page;
mod text;
