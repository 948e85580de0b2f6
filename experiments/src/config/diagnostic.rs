//! Errors that show where: file, line, column, the line itself and a caret.

use super::suggest::nearest;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Why an experiment file is refused.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read experiment file {}: {why}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// Something in it is wrong.
    #[error("{0}")]
    At(Box<Diagnostic>),
}

/// One error at one place of a file. Its `Display` is the message, the place, the line with a caret, and the hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// What is wrong, lower case, one line.
    pub message: String,
    /// The file as it was named.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What to do about it.
    pub hint: Option<String>,
    excerpt: String,
    caret: String,
}

/// The most characters of a line that an error shows.
const SHOWN: usize = 100;

impl Diagnostic {
    /// An error about `span` (bytes) of `text`; a span that is not in the text is moved into it.
    #[must_use]
    pub fn new(text: &str, file: &str, span: Range<usize>, message: String, hint: Option<String>) -> Self {
        let start = floor_boundary(text, span.start);
        let end = floor_boundary(text, span.end).max(start);
        let line_start = text[..start].rfind('\n').map_or(0, |i| i + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |i| start + i);
        let before: Vec<char> = text[line_start..start].chars().collect();
        let marked = text[start..end.min(line_end)].trim_end().chars().count().max(1);

        // A window around the caret: a line may be as long as the file.
        let short = text[line_start..line_end].chars().count() <= SHOWN;
        let first = if short { 0 } else { before.len().saturating_sub(SHOWN / 2) };
        let visible = |c: char| if c == '\t' || !c.is_control() { c } else { '\u{fffd}' };
        let excerpt: String =
            text[line_start..line_end].trim_end().chars().skip(first).take(SHOWN).map(visible).collect();
        let mut caret: String = before[first..].iter().map(|&c| if c == '\t' { '\t' } else { ' ' }).collect();
        let room = (SHOWN + first).saturating_sub(before.len()).max(1);
        caret.extend(std::iter::repeat_n('^', marked.min(room)));
        Self {
            message,
            file: file.to_owned(),
            line: text[..start].matches('\n').count() + 1,
            column: before.len() + 1,
            hint,
            excerpt,
            caret,
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let gutter = " ".repeat(number.len());
        writeln!(f, "{}", self.message)?;
        writeln!(f, "{gutter}--> {}:{}:{}", self.file, self.line, self.column)?;
        writeln!(f, "{gutter} |")?;
        writeln!(f, "{number} | {}", self.excerpt)?;
        write!(f, "{gutter} | {}", self.caret)?;
        if let Some(hint) = &self.hint {
            write!(f, "\n{gutter} = help: {hint}")?;
        }
        Ok(())
    }
}

/// The largest char boundary of `text` that is not above `at`.
fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// A parsed file that can still say where each of its values stands.
pub(crate) struct Doc<'t> {
    /// The file's text.
    pub text: &'t str,
    /// Its name in messages.
    pub file: String,
    /// Its table.
    pub table: Spanned<DeTable<'t>>,
}

impl<'t> Doc<'t> {
    /// Parses the syntax.
    pub(crate) fn parse(text: &'t str, file: &str) -> Result<Self, ConfigError> {
        match DeTable::parse(text) {
            Ok(table) => Ok(Self { text, file: file.to_owned(), table }),
            Err(e) => {
                let message = format!("not valid TOML: {}", lower_first(e.message()));
                let d = Diagnostic::new(text, file, e.span().unwrap_or(0..0), message, None);
                Err(ConfigError::At(Box::new(d)))
            }
        }
    }

    /// An error at `span`.
    pub(crate) fn error(&self, span: Range<usize>, message: impl Into<String>, hint: Option<String>) -> ConfigError {
        ConfigError::At(Box::new(Diagnostic::new(self.text, &self.file, span, message.into(), hint)))
    }

    /// Whether the file has a value at a dotted path.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.find(path).2
    }

    /// Span of the value at a dotted path, `policy.0.budget.1`; of the nearest parent that exists otherwise.
    pub(crate) fn value(&self, path: &str) -> Range<usize> {
        self.find(path).0
    }

    /// Span of the key at the end of a dotted path; of the value where it has no key.
    pub(crate) fn key(&self, path: &str) -> Range<usize> {
        let (value, key, _) = self.find(path);
        key.unwrap_or(value)
    }

    /// Value span, key span where there is one, and whether the whole path was found.
    fn find(&self, path: &str) -> (Range<usize>, Option<Range<usize>>, bool) {
        let mut segments = path.split('.');
        let first = segments.next().unwrap_or_default();
        let Some((key, mut at)) = self.table.get_ref().get_key_value(first) else {
            return (0..0, None, false);
        };
        let mut key = Some(key.span());
        for segment in segments {
            let (k, next) = match at.get_ref() {
                DeValue::Table(t) => match t.get_key_value(segment) {
                    Some((k, v)) => (Some(k.span()), v),
                    None => return (at.span(), key, false),
                },
                DeValue::Array(a) => match segment.parse::<usize>().ok().and_then(|i| a.get(i)) {
                    Some(v) => (None, v),
                    None => return (at.span(), key, false),
                },
                _ => return (at.span(), key, false),
            };
            (key, at) = (k, next);
        }
        (at.span(), key, true)
    }

    /// A serde error of this file in words; `more` are keys of the top level that serde does not know of.
    pub(crate) fn explain(&self, e: &toml::de::Error, more: &[&str]) -> ConfigError {
        let top = self.table.get_ref().iter().any(|(key, _)| Some(key.span()) == e.span());
        let (message, hint) = humanise(e.message(), if top { more } else { &[] });
        self.error(e.span().unwrap_or(0..0), message, hint)
    }
}

/// Serde's message in the words of this project, and a hint.
pub(crate) fn humanise(message: &str, more: &[&str]) -> (String, Option<String>) {
    // A multi-line message would break the frame.
    let message = message.lines().next().unwrap_or_default();
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    for (lead, what) in [("unknown field `", "key"), ("unknown variant `", "value")] {
        if message.starts_with(lead) && !quoted.is_empty() {
            // Keys are no values.
            let more = if what == "key" { more } else { &[] };
            let known: Vec<&str> = quoted[1..].iter().chain(more).copied().collect();
            let hint = match nearest(quoted[0], known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if known.is_empty() => "no key is expected here".to_owned(),
                None => format!("expected one of {}", list(&known)),
            };
            return (format!("unknown {what} `{}`", shorten(quoted[0])), Some(hint));
        }
    }
    if let (true, [name, ..]) = (message.starts_with("missing field `"), &quoted[..]) {
        return (format!("missing key `{name}`"), None);
    }
    let message = match message.find(", expected struct ") {
        Some(at) => format!("{}, expected a table", &message[..at]),
        None => message.to_owned(),
    };
    (lower_first(&shorten(&message)), None)
}

/// `a`, `b`, `c`.
pub(crate) fn list(words: &[&str]) -> String {
    words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(", ")
}

/// A message about a value of a megabyte is still one line.
fn shorten(s: &str) -> String {
    if s.chars().count() <= 240 {
        return s.to_owned();
    }
    let (head, tail): (String, Vec<char>) = (s.chars().take(110).collect(), s.chars().rev().take(110).collect());
    format!("{head} … {}", tail.into_iter().rev().collect::<String>())
}

fn lower_first(s: &str) -> String {
    let mut chars = s.chars();
    chars.next().map_or_else(String::new, |c| c.to_lowercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_under_the_span() {
        let text = "a = 1\n\tbé = [1, 22]\n";
        let span = text.find("22").unwrap();
        let d = Diagnostic::new(text, "x.toml", span..span + 2, "too large".into(), Some("use 2".into()));
        let shown = d.to_string();
        assert_eq!(shown, "too large\n --> x.toml:2:11\n  |\n2 | \tbé = [1, 22]\n  | \t         ^^\n  = help: use 2",);
    }

    #[test]
    fn any_span_of_any_text_is_shown() {
        let long = "x".repeat(5000);
        for (text, span) in [
            ("", 0..0),
            ("é", 1..1),
            ("a\n", std::ops::Range { start: 9, end: 3 }),
            (long.as_str(), 4000..4900),
            ("a", 1..1),
        ] {
            let shown = Diagnostic::new(text, "f", span, "m".into(), None).to_string();
            assert!(shown.lines().all(|l| l.chars().count() <= SHOWN + 8), "{shown}");
            assert!(shown.contains('^'));
        }
    }

    #[test]
    fn serde_messages_become_ours() {
        let check = |message: &str, expect: (&str, Option<&str>)| {
            let (m, h) = humanise(message, &["policy"]);
            assert_eq!((m.as_str(), h.as_deref()), expect);
        };
        check("unknown field `nam`, expected `name` or `seed`", ("unknown key `nam`", Some("did you mean `name`?")));
        check("unknown field `polcy`, expected `name`", ("unknown key `polcy`", Some("did you mean `policy`?")));
        check("missing field `seed`", ("missing key `seed`", None));
        check(
            "unknown variant `x`, expected `off` or `on`",
            ("unknown value `x`", Some("expected one of `off`, `on`")),
        );
        check(
            "invalid type: integer `1`, expected struct Target",
            ("invalid type: integer `1`, expected a table", None),
        );
    }
}
