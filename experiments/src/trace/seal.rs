//! The checksum of files that Treeline wrote.
//!
//! Parquet keeps its directory at the end and says nothing about the bytes behind the first four, as long as the directory
//! points past them. There 24 bytes of ours lie: a name, the file's length and a 64-bit FNV-1a hash of the file with the
//! hash's own bytes left out. A truncated or altered file is told apart from a good one before a decoder sees it.

const NAME: &[u8; 8] = b"TREELINE";
const PLACE: usize = 4;
/// Bytes of the seal: name, length, hash.
pub(super) const LENGTH: usize = 24;
const HASH: usize = PLACE + 16;

/// What is written behind the first four bytes of a file, to be filled in by [`close`].
pub(super) fn open() -> [u8; LENGTH] {
    let mut seal = [0; LENGTH];
    seal[..8].copy_from_slice(NAME);
    seal
}

/// Fills in length and hash once the file is complete.
pub(super) fn close(file: &mut [u8]) {
    let length = file.len() as u64;
    if let Some(place) = file.get_mut(PLACE + 8..HASH) {
        place.copy_from_slice(&length.to_le_bytes());
    }
    let hash = hash(file);
    if let Some(place) = file.get_mut(HASH..HASH + 8) {
        place.copy_from_slice(&hash.to_le_bytes());
    }
}

/// Whether the file carries a seal that holds; `None` without a seal.
pub(super) fn sealed(file: &[u8]) -> Option<bool> {
    let seal = file.get(PLACE..PLACE + LENGTH).filter(|s| s.starts_with(NAME))?;
    let number = |at: usize| seal.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    Some(number(8) == Some(file.len() as u64) && number(16) == Some(hash(file)))
}

/// FNV-1a over everything but the hash's own eight bytes.
fn hash(file: &[u8]) -> u64 {
    let step = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3);
    let (head, tail) = (file.get(..HASH).unwrap_or(file), file.get(HASH + 8..).unwrap_or(&[]));
    head.iter().chain(tail).fold(0xcbf2_9ce4_8422_2325, step)
}
