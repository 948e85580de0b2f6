//! Columns in memory and their way into a row group.

use parquet::basic::{Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnDescriptor, ColumnPath};
use std::io::Write;

/// One column of a row group: plain values (one a row), optional ones, or lists.
#[derive(Debug, Clone)]
pub(crate) enum Column {
    /// Unsigned 32-bit numbers.
    U32(Vec<u32>),
    /// Unsigned 64-bit numbers.
    U64(Vec<u64>),
    /// Strings.
    Text(Vec<String>),
    /// Unsigned 32-bit numbers that may be absent.
    MaybeU32(Vec<Option<u32>>),
    /// Double-precision numbers that may be absent.
    MaybeF64(Vec<Option<f64>>),
    /// Strings that may be absent.
    MaybeText(Vec<Option<String>>),
    /// Lists of signed numbers.
    I32s(Vec<Vec<i32>>),
    /// Lists of unsigned numbers.
    U32s(Vec<Vec<u32>>),
    /// Lists of single-precision numbers.
    F32s(Vec<Vec<f32>>),
}

impl Column {
    /// The line that declares it in a Parquet schema.
    pub(crate) fn declaration(&self, name: &str) -> String {
        let (repetition, ty, annotation) = match self {
            Self::U32(_) => ("required", "int32", " (INTEGER(32,false))"),
            Self::U64(_) => ("required", "int64", " (INTEGER(64,false))"),
            Self::Text(_) => ("required", "binary", " (STRING)"),
            Self::MaybeU32(_) => ("optional", "int32", " (INTEGER(32,false))"),
            Self::MaybeF64(_) => ("optional", "double", ""),
            Self::MaybeText(_) => ("optional", "binary", " (STRING)"),
            Self::I32s(_) => ("repeated", "int32", ""),
            Self::U32s(_) => ("repeated", "int32", " (INTEGER(32,false))"),
            Self::F32s(_) => ("repeated", "float", ""),
        };
        format!("  {repetition} {ty} {name}{annotation};\n")
    }
}

/// A schema of the named columns.
pub(crate) fn schema(name: &str, columns: &[(&str, Column)]) -> String {
    let lines: String = columns.iter().map(|(n, c)| c.declaration(n)).collect();
    format!("message {name} {{\n{lines}}}")
}

/// Path of a top-level column.
pub(crate) fn path(name: &str) -> ColumnPath {
    ColumnPath::new(vec![name.to_owned()])
}

/// Writes the columns, in schema order, as one row group.
pub(crate) fn write_group<W: Write + Send>(
    file: &mut SerializedFileWriter<W>,
    columns: &[(&str, Column)],
) -> Result<()> {
    let mut group = file.next_row_group()?;
    for (name, column) in columns {
        let missing = || ParquetError::General(format!("the schema has no column for `{name}`"));
        let mut out = group.next_column()?.ok_or_else(missing)?;
        macro_rules! write {
            ($ty:ty, $values:expr, $def:expr, $rep:expr) => {
                out.typed::<$ty>().write_batch(&$values, $def, $rep)?
            };
        }
        match column {
            Column::U32(v) => write!(Int32Type, bits(v), None, None),
            Column::U64(v) => write!(Int64Type, v.iter().map(|&x| x as i64).collect::<Vec<_>>(), None, None),
            Column::Text(v) => write!(ByteArrayType, texts(v), None, None),
            Column::MaybeU32(v) => {
                let values: Vec<i32> = v.iter().flatten().map(|&x| x as i32).collect();
                write!(Int32Type, values, Some(&present(v)), None)
            }
            Column::MaybeF64(v) => {
                let values: Vec<f64> = v.iter().flatten().copied().collect();
                write!(DoubleType, values, Some(&present(v)), None)
            }
            Column::MaybeText(v) => {
                write!(ByteArrayType, texts(v.iter().flatten()), Some(&present(v)), None)
            }
            Column::I32s(v) => {
                let (def, rep) = levels(v);
                write!(Int32Type, v.concat(), Some(&def), Some(&rep))
            }
            Column::U32s(v) => {
                let (def, rep) = levels(v);
                write!(Int32Type, bits(&v.concat()), Some(&def), Some(&rep))
            }
            Column::F32s(v) => {
                let (def, rep) = levels(v);
                write!(FloatType, v.concat(), Some(&def), Some(&rep))
            }
        };
        out.close()?;
    }
    group.close()?;
    Ok(())
}

/// Parquet keeps unsigned numbers as the signed ones of the same bits.
fn bits(values: &[u32]) -> Vec<i32> {
    values.iter().map(|&x| x as i32).collect()
}

fn texts<S: AsRef<str>>(values: impl IntoIterator<Item = S>) -> Vec<ByteArray> {
    values.into_iter().map(|s| ByteArray::from(s.as_ref())).collect()
}

fn present<T>(values: &[Option<T>]) -> Vec<i16> {
    values.iter().map(|v| i16::from(v.is_some())).collect()
}

/// Definition and repetition levels of lists: an empty list is one undefined entry, a list's first element repeats nothing.
fn levels<T>(lists: &[Vec<T>]) -> (Vec<i16>, Vec<i16>) {
    let (mut def, mut rep) = (Vec::new(), Vec::new());
    for list in lists {
        let entries = list.len().max(1);
        def.extend(std::iter::repeat_n(i16::from(!list.is_empty()), entries));
        rep.push(0);
        rep.extend(std::iter::repeat_n(1, entries - 1));
    }
    (def, rep)
}

/// Whether a column that was read can be a list (or value) of `physical`: at most one level of repetition.
pub(super) fn fits(column: &ColumnDescriptor, physical: Physical) -> bool {
    let repeats = column.self_type().get_basic_info().has_repetition()
        && column.self_type().get_basic_info().repetition() == Repetition::REPEATED;
    column.physical_type() == physical && column.max_rep_level() <= 1 && (column.max_def_level() <= 3 || repeats)
}
