//! Where each field of a profile comes from.

use std::fmt;

/// One field of a profile as it was written, with its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Dotted key, as in the file.
    pub key: String,
    /// The value as text.
    pub value: String,
    /// A publication, a measurement, or an argument.
    pub source: String,
}

/// The origins of all fields of one profile, in the order of the file.
///
/// Fields of profiles are plain numbers, so that formulas read well; what each rests on is asked for by its key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources(Vec<Origin>);

impl Sources {
    /// Notes the origin of a field.
    pub(crate) fn note(&mut self, key: String, value: String, source: String) {
        self.0.push(Origin { key, value, source });
    }

    /// The origin of the field with this dotted key; None if the profile leaves the field out.
    #[must_use]
    pub fn of(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|o| o.key == key).map(|o| o.source.as_str())
    }

    /// All fields, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Origin> {
        self.0.iter()
    }

    /// Number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One line a field: key, value, source.
impl fmt::Display for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.0.iter().map(|o| o.key.chars().count()).max().unwrap_or(0);
        let value = self.0.iter().map(|o| o.value.chars().count()).max().unwrap_or(0).min(28);
        for o in &self.0 {
            writeln!(f, "  {:key$}  {:value$}  {}", o.key, o.value, o.source)?;
        }
        Ok(())
    }
}
