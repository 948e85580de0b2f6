//! A Parquet file of the package as whole columns.

use super::ImportError;
use super::pages::Pages;
use crate::trace::guard;
use bytes::Bytes;
use parquet::basic::Type as Physical;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result as ParquetResult;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use std::panic::AssertUnwindSafe;

/// A file of the package.
pub(super) struct Table {
    file: String,
    reader: SerializedFileReader<Bytes>,
    bytes: Bytes,
    rows: usize,
}

/// A column of texts. Absent where every row of the file lacks it.
pub(super) struct Texts(Vec<ByteArray>);

impl Texts {
    pub(super) fn get(&self, row: usize) -> &str {
        self.0.get(row).and_then(|b| std::str::from_utf8(b.data()).ok()).unwrap_or("")
    }
}

impl Table {
    /// Opens the bytes of `file`.
    pub(super) fn open(file: &str, bytes: Vec<u8>) -> Result<Self, ImportError> {
        guard::envelope(&bytes).map_err(|what| ImportError::content(file, what))?;
        let bytes = Bytes::from(bytes);
        let reader = SerializedFileReader::new(bytes.clone())
            .map_err(|e| ImportError::content(file, format!("is no readable Parquet file: {e}")))?;
        let rows = usize::try_from(reader.metadata().file_metadata().num_rows()).unwrap_or(usize::MAX);
        // Every row has a time of 8 bytes, or an index into times.
        if rows > bytes.len() {
            return Err(ImportError::content(file, format!("claims {rows} rows in {} bytes", bytes.len())));
        }
        Ok(Self { file: file.into(), reader, bytes, rows })
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn fault(&self, what: impl Into<String>) -> ImportError {
        ImportError::content(&self.file, what)
    }

    pub(super) fn texts(&self, name: &str) -> Result<Texts, ImportError> {
        self.column::<ByteArrayType>(name, Physical::BYTE_ARRAY).map(Texts)
    }

    pub(super) fn numbers(&self, name: &str) -> Result<Vec<i64>, ImportError> {
        self.column::<Int64Type>(name, Physical::INT64)
    }

    pub(super) fn floats(&self, name: &str) -> Result<Vec<f64>, ImportError> {
        self.column::<DoubleType>(name, Physical::DOUBLE)
    }

    /// A flat column without nulls, one value per row.
    fn column<T: DataType>(&self, name: &str, physical: Physical) -> Result<Vec<T::T>, ImportError> {
        let schema = self.reader.metadata().file_metadata().schema_descr();
        let at = (0..schema.num_columns()).find(|&c| schema.column(c).path().string() == name);
        let at = at.ok_or_else(|| self.fault(format!("has no column `{name}`")))?;
        let descriptor = schema.column(at);
        if descriptor.physical_type() != physical || descriptor.max_rep_level() != 0 || descriptor.max_def_level() > 1 {
            return Err(self.fault(format!("column `{name}` is no plain {physical}")));
        }
        // Decoders meet bytes that no checksum vouches for; a panic of theirs is an error of the file.
        let decoded = std::panic::catch_unwind(AssertUnwindSafe(|| self.decode::<T>(at)));
        let decoded =
            decoded.unwrap_or_else(|_| Err(parquet::errors::ParquetError::General("cannot be decoded".into())));
        let values = decoded.map_err(|e| self.fault(format!("column `{name}`: {e}")))?;
        if values.len() != self.rows {
            return Err(self.fault(format!("column `{name}` has {} values in {} rows", values.len(), self.rows)));
        }
        Ok(values)
    }

    fn decode<T: DataType>(&self, at: usize) -> ParquetResult<Vec<T::T>> {
        let schema = self.reader.metadata().file_metadata().schema_descr();
        let (mut values, mut levels) = (Vec::new(), Vec::new());
        for group in self.reader.metadata().row_groups() {
            let pages = Pages::new(&self.bytes, group.column(at))?;
            let mut column = ColumnReaderImpl::<T>::new(schema.column(at), Box::new(pages));
            loop {
                let (records, _, _) = column.read_records(4096, Some(&mut levels), None, &mut values)?;
                levels.clear();
                if records == 0 {
                    break;
                }
            }
        }
        Ok(values)
    }
}
