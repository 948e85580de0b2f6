//! The one place that writes to the terminal: results to stdout, everything else to stderr.

use anyhow::Context as _;
use std::io::{self, Write};

/// The reader of stdout has gone (`treeline … | head`): no error, but no reason to go on either.
#[derive(Debug, thiserror::Error)]
#[error("the reader of stdout hung up")]
pub(super) struct HungUp;

/// Where output goes and what it may look like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Out {
    /// Whether results may be coloured.
    pub colour: bool,
    /// Whether messages may be coloured.
    pub colour_messages: bool,
    /// Columns of the terminal that shows results.
    pub width: usize,
}

/// Columns where nobody says.
const WIDTH: usize = 120;

impl Out {
    /// Looks at the terminal and at `NO_COLOR`.
    pub(super) fn detect() -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
        let plain = set("NO_COLOR") || std::env::var_os("TERM").is_some_and(|t| t == "dumb");
        let stdout = console::Term::stdout();
        let asked = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok()).filter(|c| *c > 0);
        let width = match (asked, stdout.is_term()) {
            (Some(columns), _) => columns,
            (None, true) => stdout.size_checked().map_or(WIDTH, |(_, columns)| usize::from(columns).max(40)),
            (None, false) => WIDTH,
        };
        Self { colour: stdout.is_term() && !plain, colour_messages: console::Term::stderr().is_term() && !plain, width }
    }

    /// Writes a result to stdout, ending with one newline.
    pub(super) fn data(&self, text: &str) -> anyhow::Result<()> {
        let mut stdout = io::stdout().lock();
        let newline: &[u8] = if text.is_empty() || text.ends_with('\n') { b"" } else { b"\n" };
        let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.write_all(newline));
        match written.and_then(|()| stdout.flush()) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(HungUp.into()),
            result => Ok(result.context("stdout")?),
        }
    }

    /// Writes JSON to stdout.
    pub(super) fn json(&self, value: &impl serde::Serialize) -> anyhow::Result<()> {
        self.data(&serde_json::to_string_pretty(value)?)
    }

    /// Tells the user something on stderr. A closed stderr is no reason to fail.
    pub(super) fn note(&self, text: &str) {
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// Tells the user what went wrong, with its causes, on stderr.
    pub(super) fn error(&self, e: &anyhow::Error) {
        let mut text = e.to_string();
        for cause in e.chain().skip(1) {
            let cause = cause.to_string();
            // Many libraries repeat their cause in their own message.
            if !text.contains(&cause) {
                text.push_str(": ");
                text.push_str(&cause);
            }
        }
        let lead = if self.colour_messages { "\x1b[1;31merror\x1b[0m" } else { "error" };
        self.note(&format!("{lead}: {text}"));
    }

    /// `text` in bold where results may be coloured.
    pub(super) fn bold(&self, text: &str) -> String {
        if self.colour { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// `text` in green where results may be coloured.
    pub(super) fn green(&self, text: &str) -> String {
        if self.colour { format!("\x1b[32m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// `text` dimmed where results may be coloured.
    pub(super) fn dim(&self, text: &str) -> String {
        if self.colour { format!("\x1b[2m{text}\x1b[0m") } else { text.to_owned() }
    }
}
