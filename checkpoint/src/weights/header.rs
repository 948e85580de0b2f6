//! The header of a safetensors file, read without trusting a number in it.
//!
//! Layout (safetensors format page): 8 bytes little-endian length, that many bytes of JSON, then the tensors' bytes without gaps.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

use safetensors::Dtype;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::error::{Error, Result};

/// Largest header that the format allows.
const HEADER_LIMIT: u64 = 100_000_000;

/// Where a tensor lies in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    /// Byte range in the file.
    pub start: usize,
    pub end: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    dtype: Dtype,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// One member of the header object.
enum Member {
    Metadata,
    Tensor(RawEntry),
}

/// Object members in file order, with duplicates kept: a map would hide them.
struct Members(Vec<(String, Member)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        struct V(PhantomData<()>);
        impl<'de> Visitor<'de> for V {
            type Value = Members;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Members, A::Error> {
                // No capacity is taken from a size hint: memory grows with the bytes that were really read.
                let mut members = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    let member = if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                        Member::Metadata
                    } else {
                        let entry =
                            map.next_value().map_err(|e| serde::de::Error::custom(format!("tensor `{name}`: {e}")))?;
                        Member::Tensor(entry)
                    };
                    members.push((name, member));
                }
                Ok(Members(members))
            }
        }
        d.deserialize_map(V(PhantomData))
    }
}

/// Reads and checks the header of the file whose bytes are `file`: every tensor lies inside the file, is as long as its shape
/// says, and overlaps no other; the tensors cover all bytes after the header.
pub(super) fn read(path: &Path, file: &[u8]) -> Result<BTreeMap<String, Entry>> {
    let Some((length, rest)) = file.split_first_chunk::<8>() else {
        return Err(Error::header(
            path,
            format!("{} bytes are too few for a header: the file is truncated", file.len()),
        ));
    };
    let length = u64::from_le_bytes(*length);
    if length > HEADER_LIMIT {
        return Err(Error::header(path, format!("the header claims {length} bytes; the format allows {HEADER_LIMIT}")));
    }
    let Some(json) = usize::try_from(length).ok().and_then(|n| rest.get(..n)) else {
        let problem = format!("the header claims {length} bytes, but {} follow: the file is truncated", rest.len());
        return Err(Error::header(path, problem));
    };
    let members: Members = serde_json::from_slice(json).map_err(|e| Error::header(path, format!("header: {e}")))?;
    let base = 8 + json.len();
    let mut tensors = BTreeMap::new();
    let mut metadata = false;
    for (name, member) in members.0 {
        let Member::Tensor(raw) = member else {
            if std::mem::replace(&mut metadata, true) {
                return Err(Error::header(path, "the header has `__metadata__` twice"));
            }
            continue;
        };
        let entry = check(path, &name, raw, base, file.len())?;
        if tensors.insert(name.clone(), entry).is_some() {
            return Err(Error::tensor(path, &name, "is in the header twice"));
        }
    }
    no_gaps(path, &tensors, base, file.len())?;
    Ok(tensors)
}

fn check(path: &Path, name: &str, raw: RawEntry, base: usize, len: usize) -> Result<Entry> {
    let fail = |problem: String| Error::tensor(path, name, problem);
    let [from, to] = raw.data_offsets;
    let place = |offset: u64| usize::try_from(offset).ok().and_then(|o| o.checked_add(base));
    let (Some(start), Some(end)) = (place(from), place(to)) else {
        return Err(fail(format!("offsets {from}..{to} overflow")));
    };
    if start > end {
        return Err(fail(format!("offsets {from}..{to} run backwards")));
    }
    if end > len {
        return Err(fail(format!("ends at byte {end}, but the file has {len}: it is truncated")));
    }
    let bits = raw.shape.iter().try_fold(raw.dtype.bitsize() as u64, |n, d| n.checked_mul(*d));
    let shape = raw.shape.iter().map(|d| usize::try_from(*d).ok()).collect::<Option<Vec<_>>>();
    let (Some(bits), Some(shape)) = (bits, shape) else {
        return Err(fail(format!("shape {:?} overflows", raw.shape)));
    };
    if bits % 8 != 0 || bits / 8 != (end - start) as u64 {
        let problem =
            format!("{:?} {shape:?} takes {} bytes, but its offsets span {}", raw.dtype, bits.div_ceil(8), end - start);
        return Err(fail(problem));
    }
    Ok(Entry { dtype: raw.dtype, shape, start, end })
}

fn no_gaps(path: &Path, tensors: &BTreeMap<String, Entry>, base: usize, len: usize) -> Result<()> {
    let mut order: Vec<_> = tensors.iter().collect();
    order.sort_by_key(|(_, e)| (e.start, e.end));
    let mut at = base;
    for (name, entry) in order {
        if entry.start != at {
            let what = if entry.start < at { "overlaps the tensor before it" } else { "leaves a gap before it" };
            return Err(Error::tensor(
                path,
                name,
                format!("starts at byte {} instead of {at}: it {what}", entry.start),
            ));
        }
        at = entry.end;
    }
    if at != len {
        return Err(Error::header(path, format!("{} bytes follow the last tensor", len - at)));
    }
    Ok(())
}
