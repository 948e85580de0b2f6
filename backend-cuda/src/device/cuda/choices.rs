//! Algorithms that were found the fastest, kept on disk: a later process runs the same ones, so it gives the same bits, and does
//! not time them again. One file for each GPU model and version of the library, one line a shape, each with its checksum.

use super::cubin::cache_folder;
use crate::ffi::blas::Algorithm;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

/// What is known, by the text of a shape.
#[derive(Debug)]
pub(super) struct Choices {
    place: Option<PathBuf>,
    known: BTreeMap<String, [u64; 8]>,
}

impl Choices {
    /// Those of a GPU model and a version of the library.
    pub fn read(gpu: &str, version: usize) -> Self {
        let name: String = gpu.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        Self::at(cache_folder().map(|f| f.join(format!("products-{name}-{version}.txt"))))
    }

    fn at(place: Option<PathBuf>) -> Self {
        let text = place.as_ref().and_then(|p| std::fs::read_to_string(p).ok()).unwrap_or_default();
        Self { place, known: text.lines().filter_map(parse).collect() }
    }

    /// The algorithm for a shape, if it was found before.
    pub fn get(&self, shape: &str) -> Option<Algorithm> {
        self.known.get(shape).map(|data| Algorithm { data: *data })
    }

    /// Adds one and writes the file. A folder that cannot be written is no error.
    pub fn put(&mut self, shape: String, algorithm: &Algorithm) {
        self.known.insert(shape, algorithm.data);
        let Some(place) = &self.place else { return };
        let write = || -> std::io::Result<()> {
            let folder = place.parent().unwrap_or(std::path::Path::new("."));
            std::fs::create_dir_all(folder)?;
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            for (shape, data) in &self.known {
                writeln!(file, "{}", line(shape, data))?;
            }
            file.persist(place)?;
            Ok(())
        };
        let _ = write();
    }
}

fn line(shape: &str, data: &[u64; 8]) -> String {
    let mut text = shape.to_owned();
    for word in data {
        // Writing to a string cannot fail.
        let _ = write!(text, "\t{word:x}");
    }
    let sum = checksum(&text);
    text + &format!("\t{sum:x}")
}

fn parse(line: &str) -> Option<(String, [u64; 8])> {
    let (text, sum) = line.rsplit_once('\t')?;
    if u64::from_str_radix(sum, 16).ok()? != checksum(text) {
        return None;
    }
    let mut cells = text.split('\t');
    let shape = cells.next()?.to_owned();
    let words = cells.map(|c| u64::from_str_radix(c, 16)).collect::<Result<Vec<u64>, _>>().ok()?;
    Some((shape, words.try_into().ok()?))
}

fn checksum(text: &str) -> u64 {
    Sha256::digest(text).iter().take(8).fold(0, |sum, b| sum << 8 | u64::from(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_back_and_damaged_lines_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("deep/products.txt");
        let mut choices = Choices::at(Some(place.clone()));
        let data = |n: u64| [n, u64::MAX, 0, 7, 8, 9, 10, 11];
        choices.put("1 2 3".into(), &Algorithm { data: data(1) });
        choices.put("4 5 6".into(), &Algorithm { data: data(2) });
        let back = Choices::at(Some(place.clone()));
        assert_eq!(back.known, choices.known);
        assert_eq!(back.get("4 5 6").unwrap().data, data(2));
        assert!(back.get("4 5 7").is_none());
        let text = std::fs::read_to_string(&place).unwrap();
        std::fs::write(&place, text.replacen("7", "6", 1)).unwrap();
        let damaged = Choices::at(Some(place));
        assert_eq!(damaged.known.len(), 1, "{damaged:?}");
        // Without a place they are kept for this process.
        let mut nowhere = Choices::at(None);
        nowhere.put("1".into(), &Algorithm { data: data(3) });
        assert!(nowhere.get("1").is_some());
    }
}
