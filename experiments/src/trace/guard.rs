//! Holds what a Parquet file claims against its length, before a decoder reserves memory by those claims.
//!
//! Page headers are Thrift structs in the compact protocol. Only the few fields that size a buffer are looked at; the rest
//! is walked over.

use parquet::basic::Compression;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

/// The most values per byte of the file that a column may claim: run-length codes are short, a column of ours has at least
/// this much around it.
const VALUES_PER_BYTE: u64 = 64;
/// Snappy's longest copy turns 3 bytes into 64; with room for its preamble.
const SNAPPY_GROWTH: u64 = 22;

/// Magic numbers and the footer's length.
pub(crate) fn envelope(bytes: &[u8]) -> Result<(), String> {
    let tail = bytes.len().checked_sub(8).and_then(|at| bytes.get(at..)).filter(|_| bytes.len() >= 12);
    let Some((tail, magic)) = tail.and_then(|t| t.split_at_checked(4)) else {
        return Err(format!("is no Parquet file: {} bytes", bytes.len()));
    };
    if !bytes.starts_with(b"PAR1") || magic != b"PAR1" {
        return Err("is no Parquet file, or a truncated one: the magic number is missing".into());
    }
    let footer = tail.try_into().map_or(u32::MAX, u32::from_le_bytes);
    if u64::from(footer) + 12 > bytes.len() as u64 {
        return Err(format!("its footer claims {footer} bytes of a file of {}", bytes.len()));
    }
    Ok(())
}

/// Whether the file is whole as far as its envelope tells.
pub(crate) fn envelope_holds(bytes: &[u8]) -> bool {
    envelope(bytes).is_ok()
}

/// Rows, column chunks and pages.
pub(super) fn check(bytes: &[u8], metadata: &ParquetMetaData) -> Result<(), String> {
    let length = bytes.len() as u64;
    let mut rows = 0u64;
    for group in metadata.row_groups() {
        rows = rows.saturating_add(u64::try_from(group.num_rows()).unwrap_or(u64::MAX));
        for chunk in group.columns() {
            check_chunk(bytes, chunk).map_err(|why| format!("column `{}`: {why}", chunk.column_path().string()))?;
        }
    }
    if rows > length {
        return Err(format!("its footer claims {rows} rows in {length} bytes"));
    }
    Ok(())
}

fn check_chunk(bytes: &[u8], chunk: &ColumnChunkMetaData) -> Result<(), String> {
    let claimed = u64::try_from(chunk.num_values()).unwrap_or(u64::MAX);
    if claimed > bytes.len() as u64 * VALUES_PER_BYTE {
        return Err(format!("claims {claimed} values in a file of {} bytes", bytes.len()));
    }
    let growth = match chunk.compression() {
        Compression::UNCOMPRESSED => 1,
        Compression::SNAPPY => SNAPPY_GROWTH,
        other => return Err(format!("is compressed with {other}: write it uncompressed or with snappy")),
    };
    // `byte_range` insists on offsets that are not negative; a file may claim otherwise.
    let start = chunk.dictionary_page_offset().filter(|&o| o > 0).unwrap_or(chunk.data_page_offset());
    let place = |x: i64| usize::try_from(x).map_err(|_| format!("claims the place {x}"));
    let (start, length) = (place(start)?, place(chunk.compressed_size())?);
    let pages = start.checked_add(length).and_then(|end| bytes.get(start..end));
    check_pages(pages.ok_or("lies outside the file")?, growth, claimed)
}

/// Every page header of a chunk: sizes within the chunk, values within what the chunk claims.
fn check_pages(mut pages: &[u8], growth: u64, claimed: u64) -> Result<(), String> {
    let mut values = 0u64;
    while !pages.is_empty() {
        let mut thrift = Thrift { bytes: pages, at: 0 };
        let header = page_header(&mut thrift).ok_or("has a damaged page header")?;
        let body = pages.get(thrift.at..).unwrap_or(&[]);
        let packed = usize::try_from(header.packed).ok().filter(|&n| n <= body.len());
        let packed = packed.ok_or_else(|| format!("has a page of {} bytes, {} are left", header.packed, body.len()))?;
        let room = (packed as u64).saturating_mul(growth) + 64;
        if u64::try_from(header.unpacked).map_or(true, |n| n > room) {
            return Err(format!("has a page that claims to grow from {packed} bytes to {}", header.unpacked));
        }
        if header.values.iter().any(|&n| u64::try_from(n).map_or(true, |n| n > claimed.max(room))) {
            return Err("has a page that claims more values than its column".into());
        }
        values = values.saturating_add(header.values.iter().map(|&n| n.unsigned_abs()).sum());
        pages = body.get(packed..).unwrap_or(&[]);
    }
    // Twice: a dictionary has entries of its own, and a page of version 2 counts values and rows.
    if values > claimed.saturating_mul(4) + 64 {
        return Err(format!("has pages of {values} values, it claims {claimed}"));
    }
    Ok(())
}

/// The sizing fields of a page header.
#[derive(Default)]
struct PageHeader {
    unpacked: i64,
    packed: i64,
    values: Vec<i64>,
}

fn page_header(thrift: &mut Thrift<'_>) -> Option<PageHeader> {
    let mut header = PageHeader::default();
    let mut id = 0;
    while let Some(kind) = thrift.field(&mut id)? {
        match (id, kind) {
            (2, I32) => header.unpacked = thrift.signed()?,
            (3, I32) => header.packed = thrift.signed()?,
            (5 | 7 | 8, STRUCT) => {
                let mut inner = 0;
                while let Some(kind) = thrift.field(&mut inner)? {
                    match (inner, kind) {
                        // Values; nulls and rows too in version 2.
                        (1, I32) => header.values.push(thrift.signed()?),
                        (2 | 3, I32) if id == 8 => header.values.push(thrift.signed()?),
                        _ => thrift.skip(kind, 0)?,
                    }
                }
            }
            _ => thrift.skip(kind, 0)?,
        }
    }
    Some(header)
}

pub(crate) const I32: u8 = 5;
pub(crate) const STRUCT: u8 = 12;
/// Deepest nesting that a page header can have, with room.
const NESTING: u32 = 8;

/// A reader of the Thrift compact protocol; `None` = the bytes end or make no sense.
pub(crate) struct Thrift<'b> {
    pub(crate) bytes: &'b [u8],
    pub(crate) at: usize,
}

impl Thrift<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn advance(&mut self, n: u64) -> Option<()> {
        let end = self.at.checked_add(usize::try_from(n).ok()?)?;
        self.at = (end <= self.bytes.len()).then_some(end)?;
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn signed(&mut self) -> Option<i64> {
        let x = self.varint()?;
        Some((x >> 1) as i64 ^ -((x & 1) as i64))
    }

    /// Type of the next field, whose id goes to `id`; inner `None` at the end of the struct.
    pub(crate) fn field(&mut self, id: &mut i64) -> Option<Option<u8>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        *id = match byte >> 4 {
            0 => self.signed()?,
            delta => id.checked_add(i64::from(delta))?,
        };
        Some(Some(byte & 0x0f))
    }

    pub(crate) fn skip(&mut self, kind: u8, depth: u32) -> Option<()> {
        if depth > NESTING {
            return None;
        }
        match kind {
            1 | 2 => Some(()),
            3 => self.advance(1),
            4..=6 => self.varint().map(|_| ()),
            7 => self.advance(8),
            8 => {
                let length = self.varint()?;
                self.advance(length)
            }
            9 | 10 => {
                let head = self.byte()?;
                let size = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                // Each element has at least one byte, so a false size runs out of bytes at once. In lists, truth values do.
                (0..size).try_for_each(|_| match head & 0x0f {
                    1 | 2 => self.advance(1),
                    kind => self.skip(kind, depth + 1),
                })
            }
            STRUCT => {
                let mut id = 0;
                while let Some(kind) = self.field(&mut id)? {
                    self.skip(kind, depth + 1)?;
                }
                Some(())
            }
            // Maps do not occur in page headers.
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A version-1 data page header: type, unpacked and packed size, then {values, encoding, levels, levels}.
    fn header(unpacked: u64, packed: u64, values: u64) -> Vec<u8> {
        let mut out = vec![0x15, 0];
        let mut field = |head: u8, value: u64| {
            out.push(head);
            let mut x = value << 1;
            while x > 0x7f {
                out.push(x as u8 | 0x80);
                x >>= 7;
            }
            out.push(x as u8);
        };
        field(0x15, unpacked);
        field(0x15, packed);
        field(0x2c, 0);
        // The struct's head stands alone; what `field` wrote behind it is overwritten by the next line.
        out.pop();
        let mut inner = vec![0x15];
        let mut x = values << 1;
        while x > 0x7f {
            inner.push(x as u8 | 0x80);
            x >>= 7;
        }
        inner.extend([x as u8, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0]);
        out.extend(inner);
        out
    }

    fn check(unpacked: u64, packed: u64, values: u64) -> Result<(), String> {
        let mut page = header(unpacked, packed, values);
        page.extend([0; 40]);
        check_pages(&page, SNAPPY_GROWTH, 100)
    }

    #[test]
    fn a_page_may_not_claim_what_the_file_cannot_hold() {
        assert_eq!(check(200, 40, 100), Ok(()));
        assert!(check(0x7fff_ffff, 40, 100).unwrap_err().contains("claims to grow"));
        assert!(check(200, 41, 100).unwrap_err().contains("41 bytes, 40 are left"));
        assert!(check(200, 40, 1 << 30).unwrap_err().contains("more values"));
    }

    #[test]
    fn damaged_headers_end() {
        // A list that claims 2^63 elements, a string of 2^60 bytes, structs within structs.
        for bytes in [
            &[0x19, 0xf5, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f][..],
            &[0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f],
            &[0x1c; 64],
            &[0x15],
        ] {
            assert!(check_pages(bytes, 1, 10).is_err(), "{bytes:?}");
        }
    }
}
