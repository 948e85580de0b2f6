//! Pages of a Parquet column, unpacked. The `parquet` crate decodes values; its Zstandard support would need a C compiler, so pages are
//! unpacked here.

use crate::trace::guard::{I32, STRUCT, Thrift};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use std::io::Read as _;

/// The largest page that is unpacked, and the largest window that a frame may ask for.
const LARGEST: usize = 64 << 20;

/// The pages of one column chunk.
pub(super) struct Pages {
    bytes: Bytes,
    at: usize,
    compression: Compression,
}

impl Pages {
    /// The pages of `chunk`, which lies in `file`.
    pub(super) fn new(file: &Bytes, chunk: &ColumnChunkMetaData) -> Result<Self> {
        let start = chunk.dictionary_page_offset().filter(|&o| o > 0).unwrap_or(chunk.data_page_offset());
        let place = |x: i64| usize::try_from(x).map_err(|_| fault(format!("claims the place {x}")));
        let (start, length) = (place(start)?, place(chunk.compressed_size())?);
        let end =
            start.checked_add(length).filter(|&end| end <= file.len()).ok_or_else(|| fault("lies outside the file"))?;
        Ok(Self { bytes: file.slice(start..end), at: 0, compression: chunk.compression() })
    }

    fn next(&mut self) -> Result<Option<Page>> {
        let Some(rest) = self.bytes.get(self.at..).filter(|rest| !rest.is_empty()) else {
            return Ok(None);
        };
        let mut thrift = Thrift { bytes: rest, at: 0 };
        let header = Header::read(&mut thrift).ok_or_else(|| fault("has a damaged page header"))?;
        let begin = self.at + thrift.at;
        let length = usize::try_from(header.packed).map_err(|_| fault("has a page of negative length"))?;
        let end = begin.checked_add(length).filter(|&end| end <= self.bytes.len());
        let packed = self.bytes.slice(begin..end.ok_or_else(|| fault("has a page that is cut short"))?);
        self.at = begin + length;
        let unpacked = usize::try_from(header.unpacked).ok().filter(|&n| n <= LARGEST);
        let unpacked = unpacked.ok_or_else(|| fault(format!("has a page that claims {} bytes", header.unpacked)))?;
        let buf = unpack(self.compression, &packed, unpacked)?;
        // A value takes at least a bit of its page, or stands in a run; a page of 2^20 rows is beyond any of the package.
        let num_values = u32::try_from(header.values).ok().filter(|&n| n <= 1 << 20);
        let num_values = num_values.ok_or_else(|| fault(format!("has a page that claims {} values", header.values)))?;
        let encoding = encoding(header.encoding)?;
        Ok(Some(match header.kind {
            0 => Page::DataPage {
                buf,
                num_values,
                encoding,
                def_level_encoding: Encoding::RLE,
                rep_level_encoding: Encoding::RLE,
                statistics: None,
            },
            2 => Page::DictionaryPage { buf, num_values, encoding, is_sorted: false },
            other => return Err(fault(format!("has a page of kind {other}, only data pages of version 1 are read"))),
        }))
    }
}

fn fault(what: impl Into<String>) -> ParquetError {
    ParquetError::General(what.into())
}

fn encoding(code: i64) -> Result<Encoding> {
    match code {
        0 => Ok(Encoding::PLAIN),
        2 | 8 => Ok(Encoding::RLE_DICTIONARY),
        3 => Ok(Encoding::RLE),
        other => Err(fault(format!("has encoding {other}, which is not read"))),
    }
}

/// The bytes of a page; exactly as many as its header says.
fn unpack(compression: Compression, packed: &Bytes, unpacked: usize) -> Result<Bytes> {
    let out = match compression {
        Compression::UNCOMPRESSED => packed.clone(),
        Compression::SNAPPY => {
            let claimed = snap::raw::decompress_len(packed).map_err(|e| fault(format!("snappy: {e}")))?;
            if claimed != unpacked {
                return Err(fault("has a page of another length than its header says"));
            }
            snap::raw::Decoder::new().decompress_vec(packed).map_err(|e| fault(format!("snappy: {e}")))?.into()
        }
        Compression::ZSTD(_) => {
            let frame = ruzstd::decoding::StreamingDecoder::new_with_max_window_size(&packed[..], LARGEST as u64);
            let frame = frame.map_err(|e| fault(format!("zstandard: {e}")))?;
            let mut out = Vec::new();
            frame.take(unpacked as u64 + 1).read_to_end(&mut out).map_err(|e| fault(format!("zstandard: {e}")))?;
            out.into()
        }
        other => return Err(fault(format!("is compressed with {other}, which is not read"))),
    };
    if out.len() != unpacked {
        return Err(fault("has a page of another length than its header says"));
    }
    Ok(out)
}

/// What a page header says of its page.
#[derive(Default)]
struct Header {
    kind: i64,
    unpacked: i64,
    packed: i64,
    values: i64,
    encoding: i64,
}

impl Header {
    fn read(thrift: &mut Thrift<'_>) -> Option<Self> {
        let mut header = Self { kind: -1, values: -1, encoding: -1, ..Self::default() };
        let mut id = 0;
        while let Some(kind) = thrift.field(&mut id)? {
            match (id, kind) {
                (1, I32) => header.kind = thrift.signed()?,
                (2, I32) => header.unpacked = thrift.signed()?,
                (3, I32) => header.packed = thrift.signed()?,
                // A data page of version 1, or a dictionary.
                (5 | 7, STRUCT) => {
                    let mut inner = 0;
                    while let Some(kind) = thrift.field(&mut inner)? {
                        match (inner, kind) {
                            (1, I32) => header.values = thrift.signed()?,
                            (2, I32) => header.encoding = thrift.signed()?,
                            _ => thrift.skip(kind, 0)?,
                        }
                    }
                }
                _ => thrift.skip(kind, 0)?,
            }
        }
        Some(header)
    }
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        Pages::next(self)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        Err(fault("pages are read in order"))
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.get_next_page().map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::basic::ZstdLevel;

    const TEXT: &[u8] = b"measured, measured, measured, measured, and measured again";

    fn packed(compression: Compression) -> Bytes {
        match compression {
            Compression::SNAPPY => snap::raw::Encoder::new().compress_vec(TEXT).unwrap().into(),
            Compression::ZSTD(_) => {
                ruzstd::encoding::compress_to_vec(TEXT, ruzstd::encoding::CompressionLevel::Fastest).into()
            }
            _ => Bytes::from_static(TEXT),
        }
    }

    #[test]
    fn every_compression_unpacks_to_what_its_header_says_or_fails() {
        for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(ZstdLevel::default())] {
            let page = packed(compression);
            assert_eq!(unpack(compression, &page, TEXT.len()).unwrap(), TEXT, "{compression}");
            for wrong in [0, TEXT.len() - 1, TEXT.len() + 1, 1 << 40] {
                let error = unpack(compression, &page, wrong).unwrap_err().to_string();
                assert!(error.contains("another length"), "{compression} {wrong}: {error}");
            }
            assert!(unpack(compression, &page.slice(..page.len() / 2), TEXT.len()).is_err(), "{compression}");
        }
        assert!(
            unpack(Compression::LZ4, &packed(Compression::SNAPPY), 9).unwrap_err().to_string().contains("not read")
        );
    }
}
