//! Text files that people write: the one place that knows what an editor may have put into them.
//!
//! Experiments, profiles, processes, tables, counters, prompts and calibrations are read here. A byte order mark of UTF-8 is
//! left out, whoever wrote it; line ends of any kind are what the formats' own readers take.

use std::io::Read;
use std::path::Path;
use thiserror::Error;

/// Why a file is no text. It says nothing of the file: who reads it names it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TextError {
    /// The system refused.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A folder, a pipe or a device.
    #[error("is not an ordinary file")]
    NotAFile,
    /// Nobody writes so much by hand.
    #[error("is larger than {limit} bytes, too many for what it should be")]
    TooLarge {
        /// The most bytes that are read.
        limit: u64,
    },
    /// The marks of an encoding that nothing here reads.
    #[error("is UTF-16: save it as UTF-8")]
    Utf16,
    /// Bytes that are no text.
    #[error("line {line} is not UTF-8")]
    NotUtf8 {
        /// Line from 1.
        line: usize,
    },
}

/// The text of an ordinary file of at most `limit` bytes, without a byte order mark.
///
/// # Errors
/// [`TextError`]; the path is not in it.
pub fn read(path: &Path, limit: u64) -> Result<String, TextError> {
    decode(bytes(path, limit)?)
}

/// The bytes of an ordinary file of at most `limit` bytes.
///
/// # Errors
/// [`TextError`]; the path is not in it.
pub fn bytes(path: &Path, limit: u64) -> Result<Vec<u8>, TextError> {
    // A pipe would keep whoever opens it waiting.
    if !std::fs::metadata(path)?.is_file() {
        return Err(TextError::NotAFile);
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(TextError::TooLarge { limit }) } else { Ok(bytes) }
}

/// Bytes as text, without a byte order mark.
///
/// # Errors
/// [`TextError::Utf16`], or [`TextError::NotUtf8`] with the line.
pub fn decode(bytes: Vec<u8>) -> Result<String, TextError> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(TextError::Utf16);
    }
    let mut text = String::from_utf8(bytes).map_err(|e| {
        let before = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        TextError::NotUtf8 { line: before.iter().filter(|b| **b == b'\n').count() + 1 }
    })?;
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_left_out_and_what_is_no_text_is_refused() {
        assert_eq!(decode("\u{feff}a\r\nb".into()).unwrap(), "a\r\nb");
        assert_eq!(decode(b"a".to_vec()).unwrap(), "a");
        assert_eq!(decode(Vec::new()).unwrap(), "");
        assert!(matches!(decode(vec![0xff, 0xfe, b'a', 0]), Err(TextError::Utf16)));
        assert!(matches!(decode(b"a\nb\xff".to_vec()), Err(TextError::NotUtf8 { line: 2 })));
    }

    #[test]
    fn folders_and_large_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(read(folder.path(), 9), Err(TextError::NotAFile)));
        assert!(matches!(read(&folder.path().join("none"), 9), Err(TextError::Io(_))));
        let file = folder.path().join("f");
        std::fs::write(&file, "\u{feff}123456").unwrap();
        assert_eq!(read(&file, 9).unwrap(), "123456");
        assert!(matches!(read(&file, 8), Err(TextError::TooLarge { limit: 8 })));
    }
}
